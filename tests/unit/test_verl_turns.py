"""Whose turn it is on shared GPUs: one is awake, and nobody is while the agent learns."""

import asyncio

import pytest

from training.trainers.verl.turns import Turns


class Machine:
    """Two frozen models and an agent on the same GPUs; notes every change and checks it."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.notes: list[str] = []
        self.awake: set[str] = set()

    def player(self, name: str, fails: bool = False) -> "Player":
        return Player(self, name, fails)


class Player:
    def __init__(self, machine: Machine, name: str, fails: bool) -> None:
        self.machine, self.name, self.fails = machine, name, fails

    async def sleep(self) -> None:
        self.machine.notes.append(f"-{self.name}")
        await asyncio.sleep(0)
        self.machine.awake.remove(self.name)

    async def wake(self) -> None:
        assert not self.machine.awake, "two would be awake"
        self.machine.notes.append(f"+{self.name}")
        await asyncio.sleep(0)
        if self.fails:
            raise RuntimeError("does not wake up")
        self.machine.awake.add(self.name)

    async def play(self) -> None:
        async with self.machine.turns.of(self):
            assert self.machine.awake == {self.name}
            await asyncio.sleep(0)
            assert self.machine.awake == {self.name}


async def learn(machine: Machine) -> None:
    async with machine.turns.of(None):
        assert not machine.awake
        machine.notes.append("learn")


def test_the_steps_of_a_curriculum_stage() -> None:
    async def stage() -> list[str]:
        machine = Machine()
        agent, executor, anchor = (machine.player(n) for n in ("agent", "executor", "anchor"))
        for _ in range(2):
            await agent.play()
            await executor.play()
            await anchor.play()
            await learn(machine)
        return machine.notes

    step = ["+agent", "-agent", "+executor", "-executor", "+anchor", "-anchor", "learn"]
    assert asyncio.run(stage()) == 2 * step


def test_turns_in_a_row_change_nothing() -> None:
    async def stage() -> list[str]:
        machine = Machine()
        agent = machine.player("agent")
        await agent.play()
        await agent.play()
        await learn(machine)
        await learn(machine)
        return machine.notes

    assert asyncio.run(stage()) == ["+agent", "-agent", "learn", "learn"]


def test_turns_asked_for_at_once_do_not_overlap() -> None:
    async def stage() -> list[str]:
        machine = Machine()
        players = [machine.player(name) for name in "abc"]
        await asyncio.gather(*(player.play() for player in players * 2), learn(machine))
        return machine.notes

    notes = asyncio.run(stage())
    assert [note for note in notes if note.startswith("+")] == ["+a", "+b", "+c"] * 2


def test_whoever_does_not_wake_up_has_no_turn() -> None:
    async def stage() -> list[str]:
        machine = Machine()
        good, broken = machine.player("good"), machine.player("broken", fails=True)
        await good.play()
        with pytest.raises(RuntimeError, match="wake up"):
            await broken.play()
        await good.play()
        return machine.notes

    assert asyncio.run(stage()) == ["+good", "-good", "+broken", "+good"]
