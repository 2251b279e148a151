"""What surrounds the runs of a tuning: arguments put back or zeroed, results checked."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ._check import Check, holds_truth, is_ndarray, is_tensor, poison
from ._restore import keep, zero
from ._signature import arguments_by_name, shown_signature

__all__ = ["Guard", "GuardPlan"]


class GuardPlan:
    """The ``check``, ``restore`` and ``reset`` options of a launcher, validated at decoration.

    Parameters
    ----------
    fn
        The launcher.
    check
        A reference, a `Check`, or nothing.
    restore
        Names of parameters to put back before every run of a tuning.
    reset
        Names of parameters to set to zero before every run of a tuning.

    Raises
    ------
    TypeError
        An option is of a wrong kind.
    ValueError
        A name is no parameter of the launcher, or is in both lists.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        check: Check | Callable[..., Any] | None = None,
        restore: Iterable[str] = (),
        reset: Iterable[str] = (),
    ) -> None:
        self.fn = fn
        self.check = check if check is None or isinstance(check, Check) else Check(check)
        self.signature = shown_signature(fn)
        self.restore = self._names("restore", restore)
        self.reset = self._names("reset", reset)
        both = sorted(set(self.restore) & set(self.reset))
        if both:
            raise ValueError(f"disttune: {both} cannot be both in restore and in reset")
        if self.check is not None:
            self._names("outputs", self.check.outputs)

    @property
    def needed(self) -> bool:
        """Whether there is anything to do."""
        return self.check is not None or bool(self.restore or self.reset)

    def _names(self, option: str, names: Iterable[str]) -> tuple[str, ...]:
        if isinstance(names, str):
            raise TypeError(f"disttune: {option}={names!r}: expected a list of parameter names")
        found = tuple(names)
        for name in found:
            if not isinstance(name, str):
                raise TypeError(f"disttune: {option}={list(found)!r}: expected parameter names")
            self._find(option, name)
        return found

    def _find(self, option: str, name: str) -> None:
        if self.signature is None:
            if option:
                raise ValueError(
                    f"disttune: {option}=[{name!r}]: {self.fn!r} has no signature to find it in"
                )
            return
        kinds = {p.name: p.kind for p in self.signature.parameters.values()}
        packed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if kinds.get(name, packed[0]) not in packed:
            return
        if inspect.Parameter.VAR_KEYWORD in kinds.values():
            return  # it may come by keyword
        known = [parameter for parameter, kind in kinds.items() if kind not in packed]
        raise ValueError(
            f"disttune: {option}=[{name!r}]: {getattr(self.fn, '__qualname__', self.fn)} has no "
            f"such parameter; it has {known}"
        )

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Guard:
        """Make the guard of one tuning."""
        return Guard(self, args, kwargs)


@dataclasses.dataclass
class _Returned:
    """An argument that the launcher returned: as its result, or at a place in it."""

    value: Any
    place: int | None

    def part_of(self, result: Any) -> Any:
        """Return the same part of a reference's result."""
        if self.place is None:
            return result
        fits = isinstance(result, (list, tuple)) and self.place < len(result)
        return result[self.place] if fits else None


@dataclasses.dataclass
class _Expected:
    """What the reference said."""

    result: Any
    filled: list[Any]
    #: What the truth values of each written argument are the opposite of before a checked run.
    opposite: list[Any]


class Guard:
    """One tuning's care for its caller's arguments. Holds them no longer than the tuning lasts."""

    def __init__(self, plan: GuardPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._plan = plan
        self._args = args
        self._kwargs = kwargs
        self._named = arguments_by_name(plan.signature, args, kwargs)
        self._put_back: list[Callable[[], None]] | None = None
        self._expected: _Expected | None = None
        #: Arguments that the launcher writes: named, or found among what it returned.
        self._outputs = {
            name: self._named.get(name)
            for name in (plan.check.outputs if plan.check is not None else ())
        }
        self._returned: list[_Returned] | None = None
        #: Arguments whose contents before a run count: they are never poisoned.
        held = [self._named.get(name) for name in (*plan.restore, *plan.reset)]
        packed = [item for value in held if type(value) in (tuple, dict) for item in _items(value)]
        self._held = [*held, *packed]

    def before_run(self) -> None:
        """Put arguments back and zero those that are to be; the first call remembers them."""
        if self._put_back is None:
            self._put_back = [keep(self._named.get(n), n) for n in self._plan.restore]
        for put in self._put_back:
            put()
        for name in self._plan.reset:
            zero(self._named.get(name), name)

    def give_back(self) -> None:
        """Put arguments back after a tuning that ended with an exception."""
        for put in self._put_back or ():
            put()

    def expect(self) -> None:
        """Ask the reference, once a tuning; what it raises is the caller's, not a candidate's."""
        if self._plan.check is not None:
            self.before_run()
            self._reference(self._plan.check)

    def check(self, values: dict[str, Any]) -> str | None:
        """Run once with ``values`` of the candidate; say what is wrong with the result, if it is.

        Outputs are poisoned before the run and put back after it, except those that ``restore`` or
        ``reset`` has just set. A launcher that returns one of its arguments writes it: where that
        is learned from a tuning's first checked run, the reference and that run are made a second
        time with the argument poisoned.
        """
        check = self._plan.check
        if check is None:
            return None
        self.before_run()
        expected = self._reference(check)
        first = self._returned is None
        wrong = self._checked_run(check, values, expected)
        if wrong is None and first and self._returned:
            self.before_run()
            wrong = self._checked_run(check, values, self._reference(check))
        return wrong

    def _checked_run(self, check: Check, values: dict[str, Any], expected: _Expected) -> str | None:
        written = self._written()
        put_back = [keep(value, "output") for value in written]
        try:
            for value, wanted in zip(written, expected.opposite, strict=True):
                if not _among(value, self._held):
                    poison(value, wanted)
            self.before_run()  # after the poison, which may have reached what is put back
            result = self._plan.fn(*self._args, **self._kwargs, **values)
            if self._returned is None:
                self._returned = self._arguments_in(result)
                if self._returned:
                    self._expected = None  # of a reference that did not see them poisoned
            return self._compare(check, result, expected)
        finally:
            for put in put_back:
                put()

    def _arguments_in(self, result: Any) -> list[_Returned]:
        """Arguments of the caller's that are part of a result, and are not named as outputs."""
        mine = [v for v in (*self._args, *self._kwargs.values()) if is_tensor(v) or is_ndarray(v)]
        known = [*self._outputs.values(), *self._held]
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        return [
            _Returned(value, place if isinstance(result, (list, tuple)) else None)
            for value in mine
            if not _among(value, known)
            for place in [next((i for i, item in enumerate(items) if item is value), None)]
            if place is not None
        ]

    def _written(self) -> list[Any]:
        return [*self._outputs.values(), *(returned.value for returned in self._returned or ())]

    def _reference(self, check: Check) -> _Expected:
        """Return what the reference makes of these arguments; it is asked once."""
        if self._expected is None:
            written = self._written()
            result, filled = self._ask(check, [None] * len(written))
            opposite = self._said(result, filled)
            if holds_truth(written):
                # Starting from the opposite of what it has just said, it shows by what it leaves
                # so which truth values it does not write; nor does a candidate have to.
                opposite = self._said(*self._ask(check, opposite))
            self._expected = _Expected(result, filled, opposite)
        return self._expected

    def _said(self, result: Any, filled: list[Any]) -> list[Any]:
        """Find what the reference says of each written argument: it filled it or returned it."""
        outputs = list(self._outputs.values())
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        if result is None:
            said = filled
        elif len(outputs) == 1:
            alike = [item for item in items if _alike(item, outputs[0])]
            said = [items[0] if len(items) == 1 else alike[0] if len(alike) == 1 else filled[0]]
        else:
            said = items if len(items) == len(outputs) else filled
        return [*said, *(returned.part_of(result) for returned in self._returned or ())]

    def _ask(self, check: Check, against: list[Any]) -> tuple[Any, list[Any]]:
        """Return the reference's result, and the outputs that it was given, as it left them."""
        # It sees what a candidate sees.
        copies = {id(value): _copy(value) for value in self._written()}
        for value, wanted in zip(self._written(), against, strict=True):
            if not _among(value, self._held):
                poison(copies[id(value)], wanted)
        inside = {
            id(item): copy
            for value in self._outputs.values()
            if type(value) in (tuple, dict)  # it may be what `*args` or `**kwargs` take
            for item, copy in zip(_items(value), _items(copies[id(value)]), strict=True)
        }
        replaced = {**inside, **copies}
        args = [replaced.get(id(value), value) for value in self._args]
        kwargs = {name: replaced.get(id(value), value) for name, value in self._kwargs.items()}
        # What the reference does to other arguments must not be seen by the candidates.
        others = [
            keep(value, "argument")
            for value in (*args, *kwargs.values())
            if (is_tensor(value) or is_ndarray(value)) and not _among(value, replaced.values())
        ]
        try:
            result = check.reference(*args, **kwargs)
            shared = self._shares(result)
            if shared:
                result = _copy(result)
        finally:
            for put in others:
                put()
        return result, [copies[id(value)] for value in self._outputs.values()]

    def _shares(self, result: Any) -> bool:
        items = result if isinstance(result, (list, tuple)) else [result]
        arguments = (*self._args, *self._kwargs.values())
        return any(item is value for item in items for value in arguments if value is not None)

    def _compare(self, check: Check, result: Any, expected: _Expected) -> str | None:
        wanted = expected.result
        filled = expected.filled[0] if len(expected.filled) == 1 else tuple(expected.filled)
        outputs = list(self._outputs.values())
        written = outputs[0] if len(outputs) == 1 else tuple(outputs)
        if not outputs:
            return check.verdict(result, wanted)
        if wanted is None:
            wrong = check.verdict(written, filled)
            return wrong if wrong is not None or result is None else None
        if result is None:
            return check.verdict(written, wanted)
        return check.verdict(result, wanted)


def _among(value: Any, values: Iterable[Any]) -> bool:
    return any(value is other for other in values)


def _items(value: Any) -> list[Any]:
    return list(value.values() if isinstance(value, dict) else value)


def _alike(value: Any, other: Any) -> bool:
    described = [
        (tuple(v.shape), str(v.dtype).removeprefix("torch.")) if hasattr(v, "dtype") else None
        for v in (value, other)
    ]
    return described[0] is not None and described[0] == described[1]


def _copy(value: Any) -> Any:
    if is_tensor(value):
        return value.detach().clone()
    if is_ndarray(value):
        return value.copy()
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_copy(item) for item in value)
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return value
