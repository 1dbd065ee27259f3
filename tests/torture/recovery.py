"""A command that was disturbed, and what must be there after it was called again: what an undisturbed one leaves."""

from collections.abc import Callable, Collection

from torture.commands import Place
from torture.ended import Ended
from torture.sameness import contents, different
from torture.verbs import Verb
from torture.workshop import Workshop

Trouble = Callable[[Place], Ended]  # begins the verb in a place, and disturbs it


def recovered(workshop: Workshop, verb: Verb, trouble: Trouble, *, allowed: Collection[int] = (0, 2)) -> str | None:
    """What is wrong after the trouble, which may end with the codes `allowed`, and after a second call."""
    with workshop.place() as place:
        ended = trouble(place)
        if wrong := ended.wrong(allowed=allowed):
            return wrong
        finished = None if verb.endless else place.run(*verb.again())
        if finished and (wrong := finished.wrong(allowed=(0, 2))):
            return f"called again: {wrong}"
        differences = different(contents(place.here), workshop.reference(verb).contents)
        if differences and finished and finished.code:
            return f"called again: {finished.err.strip()}; {what(differences)}"
        return what(differences) if differences else None


def what(differences: list[str]) -> str:
    """Files left behind are named before those that differ."""
    left = [path for path in differences if ".unfinished" in path]
    if left:
        return f"left behind: {', '.join(left[:3])}"
    return f"{len(differences)} files differ: {', '.join(differences[:4])}"
