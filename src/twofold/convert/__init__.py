"""v1 ↔ v2: what can be converted exactly is, and for everything else there is a reason."""

from twofold.convert._diff import git_patch
from twofold.convert._loss import Loss
from twofold.convert._upgrade import FROM_PROMPT, PLAN_ID, Upgraded, Upgrader, upgrade

__all__ = ["FROM_PROMPT", "PLAN_ID", "Loss", "Upgraded", "Upgrader", "git_patch", "upgrade"]
