"""v1 ↔ v2: what can be converted exactly is, and for everything else there is a reason."""

from twofold.convert._carry import CARRY, Carry, Rule
from twofold.convert._diff import WHOLE_FILE, git_patch
from twofold.convert._downgrade import CORRECTED, SUPERSEDES, WITHDRAWN, Downgraded, Downgrader, Policy, downgrade
from twofold.convert._loss import Loss
from twofold.convert._upgrade import FROM_PROMPT, PLAN_ID, Upgraded, Upgrader, upgrade

__all__ = [
    "CARRY",
    "CORRECTED",
    "FROM_PROMPT",
    "PLAN_ID",
    "SUPERSEDES",
    "WHOLE_FILE",
    "WITHDRAWN",
    "Carry",
    "Downgraded",
    "Downgrader",
    "Loss",
    "Policy",
    "Rule",
    "Upgraded",
    "Upgrader",
    "downgrade",
    "git_patch",
    "upgrade",
]
