"""Which stages of a plan have to run, given what the store holds; pure."""

from collections.abc import Callable, Iterable

from training.parts import needed_part
from training.spec import StageSpec
from training.store import Manifest

Found = Callable[[str], Manifest | None]
"""Identity → manifest of its artifact, None where there is none that may be used."""


def must_run(specs: Iterable[tuple[str, StageSpec]], found: Found) -> set[str]:
    """Identities of the stages that are not done, and of those whose retired part they need.

    ``specs`` is a plan: identity and spec of every stage, in any order. A retired artifact whose
    consumers are all done is done as well, so that a finished run has nothing to do.
    """
    consumers: dict[str, list[tuple[str, str, str]]] = {}
    known = list(specs)
    for identity, spec in known:
        for name, source in spec.inputs.items():
            consumers.setdefault(source, []).append((identity, spec.stage, name))
    verdicts: dict[str, bool] = {}

    def runs(identity: str) -> bool:
        if identity not in verdicts:
            manifest = found(identity)
            verdicts[identity] = manifest is None or any(
                needed_part(stage, name) in manifest.retired_parts and runs(consumer)
                for consumer, stage, name in consumers.get(identity, [])
            )
        return verdicts[identity]

    return {identity for identity, _ in known if runs(identity)}
