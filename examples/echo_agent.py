"""The smallest agent: it says what it is told. Serves v2 and v1 clients on standard input and output."""

from twofold.runtime.agent import Agent, Prompt, Session


class Echo(Agent):
    name = "echo"
    version = "1.0"

    async def prompt(self, session: Session, prompt: Prompt) -> None:
        async with session.message() as message:
            await message.append(prompt.text)


if __name__ == "__main__":
    Echo().run()
