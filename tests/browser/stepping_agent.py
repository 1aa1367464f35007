"""An agent that does one thing a prompt, so that what it did can be looked at before it does the next."""

from twofold.runtime.agent import Agent, MessageHandle, Prompt, Session


class Stepping(Agent):
    name = "stepping"

    def __init__(self) -> None:
        super().__init__()
        self.message: MessageHandle | None = None

    async def prompt(self, session: Session, prompt: Prompt) -> None:
        word, _, rest = prompt.text.partition(" ")
        if word == "say":
            self.message = session.message()
        assert self.message is not None
        match word:
            case "say" | "add":
                await self.message.append(rest)
            case "correct":
                await self.message.replace(rest)
            case "withdraw":
                await self.message.clear()


if __name__ == "__main__":
    Stepping().run()
