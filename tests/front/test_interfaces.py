"""Every kind's handles have the whole interface of `Publication` and `Subscription`, with the same arguments."""

import importlib
import inspect
import pkgutil
import re

import pytest

import penstock

INTERFACES = tuple(
    getattr(penstock.types, name)
    for name in ("Publication", "Subscription", "Pair", "Dealer", "Router", "Requester", "Replier", "Member")
)


def _handles():
    """(class, interface) of every public class that is a publication or a subscription and can be made."""
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if module.name.split(".")[1] in ("spark", "cli"):
            continue
        for name, cls in vars(importlib.import_module(module.name)).items():
            if not inspect.isclass(cls) or name.startswith("_") or cls.__module__ != module.name:
                continue
            for interface in INTERFACES:
                mixin = not hasattr(cls, "channel")  # made with a compiled class beside it
                if cls is not interface and issubclass(cls, interface) and not inspect.isabstract(cls) and not mixin:
                    yield cls, interface


HANDLES = sorted(set(_handles()), key=lambda pair: (pair[0].__module__, pair[0].__qualname__, pair[1].__name__))


def signature(function):
    """Of a function of whatever origin: compiled ones say theirs in another way."""
    try:
        return inspect.signature(function)
    except ValueError:
        text = function.__nb_signature__[0][0]
        names = re.sub(r"\\\d+", "0", text.partition("(")[2].rpartition(") ->")[0])
        made = {}
        exec(f"def f({re.sub(r': [^,=]*', '', names)}): pass", made)  # without the types, which are text here
        return inspect.signature(made["f"])


def test_the_interface_has_something_to_say():
    assert len(HANDLES) >= 8
    for interface in INTERFACES:
        assert len(interface.__abstractmethods__) > 12
        assert any(found is interface for _, found in HANDLES)


@pytest.mark.parametrize(("cls", "interface"), HANDLES, ids=lambda value: value.__name__)
def test_a_handle_has_every_method_and_property(cls, interface):
    assert not inspect.isabstract(cls)
    for name in sorted(interface.__abstractmethods__):
        asked, there = getattr(interface, name), getattr(cls, name, None)
        assert there is not None, f"{cls.__name__} has no {name}"
        if isinstance(asked, property):
            assert not callable(there), f"{cls.__name__}.{name} is no property"
            continue
        assert callable(there), f"{cls.__name__}.{name} is no method"
        if name.startswith("__"):
            continue
        assert inspect.iscoroutinefunction(there) == inspect.iscoroutinefunction(asked), f"{cls.__name__}.{name}"
        wanted = [p for p in signature(asked).parameters.values() if p.name != "self"]
        found = [p for p in signature(there).parameters.values() if p.name != "self"]
        for place, parameter in enumerate(wanted):
            same = found[place]
            assert same.name == parameter.name, f"{cls.__name__}.{name}: {same.name} instead of {parameter.name}"
            assert same.kind == parameter.kind, f"{cls.__name__}.{name}: {same.name} is given in another way"
            required = parameter.default is inspect.Parameter.empty
            assert (same.default is inspect.Parameter.empty) == required, f"{cls.__name__}.{name}: {same.name}"
        for more in found[len(wanted) :]:
            assert more.default is not inspect.Parameter.empty, f"{cls.__name__}.{name} asks for {more.name}, too"
            assert more.kind in (more.KEYWORD_ONLY, more.VAR_KEYWORD), f"{cls.__name__}.{name}: {more.name}"


@pytest.mark.parametrize("channel", ["log:i", "ring:i", "frames:i", "pipe:i", "fake:log:i", "fake:ring:i"])
def test_opened_handles_are_instances_of_their_interface(channel):
    options = {"shape": (4,)} if "frames" in channel else {}
    with penstock.publish(channel, **options) as pub, penstock.subscribe(channel) as sub:
        assert isinstance(pub, penstock.types.Publication)
        assert isinstance(sub, penstock.types.Subscription)
        assert not isinstance(pub, penstock.types.Subscription)
    with penstock.subscribe(f"{channel}-early", **options) as sub:
        assert isinstance(sub, penstock.types.Subscription)
