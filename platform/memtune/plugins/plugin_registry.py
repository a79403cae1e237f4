"""Registries of plug-ins: built-in entries, entries of loaded files, and those of packages.

Those of installed packages are entry points in groups such as `memtune.models`. Entry points are read at the
first unknown name, and a package is imported when its own name is asked for.

`Annotated[LanguageModelConfig, MODELS]` validates a table by the class that its field `family` names, with
the messages of a discriminated union. The class of a plug-in has the digest of its source in one more field,
`source`, so that the identity of a trial changes with the source.
"""

import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Generic, Literal, NoReturn, TypeVar, cast

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticKnownError, SchemaValidator, core_schema
from typing_extensions import override

from memtune.errors import MemtuneError, MissingSourceError, PluginError
from memtune.plugins.source_modules import (
    SOURCE_FIELD,
    PluginSource,
    describe_error,
    loaded_sources,
    make_source,
    read_source_text,
)
from memtune.values import Value, forget_schemas

T = TypeVar("T")
ConfigT = TypeVar("ConfigT", bound="PluginConfig")
NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,59}")
"""Of a plug-in; its length is limited because names of files and aliases of models contain it."""
DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")

_registries: "list[PluginRegistry[object]]" = []
"""Every registry of this process, in the order in which their modules were imported."""


class PluginRegistry(Mapping[str, T], ABC, Generic[T]):
    """Entries by name. As a mapping it holds the built-in entries and those that have been loaded.

    `noun` names an entry in messages. `group` is the group of entry points that packages use.
    """

    def __init__(self, noun: str, group: str, built_in: Mapping[str, T]) -> None:
        self.noun, self.group = noun, group
        self.built_in = dict(built_in)
        self.reserved: frozenset[str] = frozenset()
        """Other names that no plug-in may take."""
        self._loaded: dict[str, T] = {}
        self._source_by_name: dict[str, PluginSource] = {}
        _registries.append(self)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> T:
        """The entry of a name; imports the package that has it. Raises KeyError and PluginError."""
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        """Names of built-in entries, then of loaded ones; packages that nobody asked for stay unimported."""
        return iter([*self.built_in, *self._loaded])

    def __len__(self) -> int:
        return len(self.built_in) + len(self._loaded)

    # By identity: entries change while a process runs, and `Annotated[Base, registry]` is hashed.
    __eq__, __hash__ = object.__eq__, object.__hash__

    def find(self, name: str) -> T | None:
        """The entry of a name, or None. Raises PluginError for a package that cannot be imported."""
        if name in self.built_in:
            return self.built_in[name]
        if name not in self._loaded and name in _read_entry_points(self.group):
            entry, source = _load_installed(self.group, name)
            self.add(name, self.adapt(name, entry, source), source)
        return self._loaded.get(name)

    def list_names(self) -> list[str]:
        """The names of all entries, those of installed packages included."""
        installed = [name for name in _read_entry_points(self.group) if name not in self.built_in]
        return list(dict.fromkeys([*self, *installed]))

    def get_source(self, name: str) -> PluginSource | None:
        """The source that defines an entry; None for a built-in one."""
        return self._source_by_name.get(name)

    def add(self, name: str, entry: T, source: PluginSource) -> None:
        """Add an entry whose name is not built in, or replace that of an earlier version of its source."""
        self._loaded[name] = entry
        self._source_by_name[name] = source
        loaded_sources[source.digest] = source

    def find_entries(self, module: ModuleType) -> Mapping[str, object]:
        """The entries of this kind that a module defines, by name; none of a kind that packages alone add.

        Raises PluginError for an invalid one.
        """
        return {}

    @abstractmethod
    def adapt(self, name: str, entry: object, source: PluginSource) -> T:
        """What the registry holds for an entry of a source. Raises PluginError for an unsuitable object."""


class PluginConfig(Value, ABC):
    """Base of the configurations of a `ConfigRegistry`."""

    @property
    def is_loaded(self) -> bool:
        """Whether its code is there; a stored configuration of a user is known without it."""
        return True


class ConfigRegistry(PluginRegistry[type[ConfigT]], Generic[ConfigT]):
    """Configuration classes by the default of their field `tag`, such as `family`.

    Stored data whose source is not loaded become a placeholder: it keeps their fields, `is_loaded` is False,
    and the abstract methods of `base` raise MissingSourceError. `placeholder` has its other members by name.
    A table without `tag` has that of `default`.
    """

    def __init__(
        self,
        noun: str,
        group: str,
        tag: str,
        base: type[ConfigT],
        built_in: Iterable[type[ConfigT]],
        placeholder: Mapping[str, object] = MappingProxyType({}),
        default: str | None = None,
    ) -> None:
        super().__init__(noun, group, {str(config.model_fields[tag].default): config for config in built_in})
        self.tag, self.base = tag, base
        self._members, self._default = placeholder, default
        self._class_by_source: dict[tuple[str, str], type[ConfigT]] = {}
        self._validators: dict[type[ConfigT], SchemaValidator] = {}

    @override
    def find_entries(self, module: ModuleType) -> Mapping[str, object]:
        """The classes that the module, or its package, defines and that have a default name."""
        root = module.__name__.partition(".")[0]
        found: dict[str, type[ConfigT]] = {}
        for value in vars(module).values():
            if not (isinstance(value, type) and issubclass(value, self.base)):
                continue
            field = value.model_fields.get(self.tag)
            if value.__module__.partition(".")[0] != root or field is None or field.is_required():
                continue
            name = str(field.default)
            other = found.setdefault(name, value)
            if other is not value:
                raise PluginError(
                    f'{other.__name__} and {value.__name__} are both the {self.noun} "{name}"; give one of '
                    f"them another {self.tag}"
                )
        return found

    @override
    def adapt(self, name: str, entry: object, source: PluginSource) -> type[ConfigT]:
        """The class with the digest of its source.

        Raises PluginError for another object, a missing method and an unsuitable name.
        """
        if not (isinstance(entry, type) and issubclass(entry, self.base)):
            raise PluginError(f"{source} has {entry!r}, which is not a configuration of a {self.noun}")
        own = entry.model_fields[self.tag].default if self.tag in entry.model_fields else None
        if own != name or not NAME_PATTERN.fullmatch(name):
            raise PluginError(
                f"{source}: {entry.__name__} needs a name of small letters, digits and underscores, at most "
                f'60, such as {self.tag}: Literal["my_name"] = "my_name"; it has {own!r}'
                + (f', its entry point "{name}"' if own != name else "")
            )
        if inspect.isabstract(entry):
            missing = ", ".join(sorted(entry.__abstractmethods__))
            raise PluginError(f"{source}: {entry.__name__} lacks the methods {missing}")
        if SOURCE_FIELD in entry.model_fields:
            raise PluginError(
                f'{source}: {entry.__name__} has a field "{SOURCE_FIELD}", in which memtune keeps the '
                "digest of the file; rename the field"
            )
        return self._class_by_source.get((name, source.digest)) or self._attach_source(entry, source)

    @override
    def add(self, name: str, entry: type[ConfigT], source: PluginSource) -> None:
        super().add(name, entry, source)
        self._class_by_source[name, source.digest] = entry
        forget_schemas()

    def _attach_source(self, entry: type[ConfigT], source: PluginSource) -> type[ConfigT]:
        fields: Any = {
            SOURCE_FIELD: (
                Literal[source.digest],
                Field(default=source.digest, description="SHA-256 of the source that defines the class"),
            )
        }
        try:
            entry.model_rebuild()  # raises for a type that the module does not define
            return create_model(
                entry.__name__, __base__=entry, __module__=entry.__module__, __doc__=entry.__doc__, **fields
            )
        except Exception as error:
            raise PluginError(f"{source}: {entry.__name__} is not usable: {describe_error(error)}") from error

    def __get_pydantic_core_schema__(
        self, source_type: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The schema of a field: pydantic calls it for `Annotated[Base, registry]`."""
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The JSON schema of a union of the entries there are now."""
        choices: dict[Any, core_schema.CoreSchema] = {
            name: config.__pydantic_core_schema__ for name, config in self.items()
        }
        return handler(core_schema.tagged_union_schema(choices, discriminator=self.tag))

    def _validate(self, data: Any) -> ConfigT:
        if isinstance(data, self.base):
            return self._accept_instance(data)
        if not isinstance(data, Mapping):
            raise PydanticKnownError("dict_type")
        name, digest = data.get(self.tag, self._default), data.get(SOURCE_FIELD)
        if name is None and self.tag not in data:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": f"'{self.tag}'"})
        config = self._find_class(name, digest)
        has_digest = DIGEST_PATTERN.fullmatch(digest) if isinstance(digest, str) else None
        if config is None and isinstance(name, str) and name not in self.built_in and has_digest:
            try:
                return self._placeholder.model_validate(data)
            except ValidationError as error:
                if any(each["type"] != "missing" for each in error.errors()):
                    raise
                # Its class has defaults which the data need.
                raise MissingSourceError(self.noun, name, str(digest)) from None
        if config is None:
            context = {
                "discriminator": f"'{self.tag}'",
                "tag": str(name),
                "expected_tags": ", ".join(f"'{known}'" for known in self.list_names()),
            }
            raise PydanticKnownError("union_tag_invalid", context)
        return self._validate_as(name, config, data)

    @cached_property
    def _placeholder(self) -> type[ConfigT]:
        def refuse(config: Any, *_: object, **__: object) -> NoReturn:
            raise MissingSourceError(self.noun, getattr(config, self.tag), config.source)

        members = {
            "__module__": __name__,
            "__annotations__": {SOURCE_FIELD: str},
            "model_config": ConfigDict(extra="allow"),
            "is_loaded": property(lambda config: False),
            **dict.fromkeys(self.base.__abstractmethods__, refuse),
            **self._members,
        }
        make_class: Any = type(self.base)
        return cast(type[ConfigT], make_class(f"Unloaded{self.base.__name__}", (self.base,), members))

    def _validate_as(self, name: str, config: type[ConfigT], data: Mapping[str, Any]) -> ConfigT:
        """A value of the class. An error in a plug-in's own validators is an invalid value."""
        try:
            if config not in self._validators:
                # A union of one member: the places of its errors hold its name, as for all unions.
                choices = {name: config.__pydantic_core_schema__}
                schema = core_schema.tagged_union_schema(choices, discriminator=lambda data: name)
                self._validators[config] = SchemaValidator(schema)
            return cast(ConfigT, self._validators[config].validate_python(data))
        except (ValidationError, MemtuneError):
            raise
        except Exception as error:
            if name in self.built_in:
                raise
            raise ValueError(f'the {self.noun} "{name}" refuses it: {describe_error(error)}') from error

    def _accept_instance(self, config: ConfigT) -> ConfigT:
        """A value of a registered class; one of a plug-in's class without its source gets the source."""
        name = getattr(config, self.tag)
        known = self._find_class(name, getattr(config, SOURCE_FIELD, None))
        if known is None and getattr(config, SOURCE_FIELD, None) is not None:
            return config  # a placeholder
        if known is not None and isinstance(config, known):
            return config
        if known is not None and type(config) in known.__mro__:
            return known.model_validate(config.model_dump())
        raise ValueError(
            f'{type(config).__name__} is not the registered {self.noun} "{name}"; name its file in models = '
            "[...], or load it with memtune.plugins.load_plugin_file"
        )

    def _find_class(self, name: Any, digest: Any) -> type[ConfigT] | None:
        if not isinstance(name, str):
            return None
        if not isinstance(digest, str) or name in self.built_in:
            return self.find(name)
        self.find(name)  # imports the package that has the name
        return self._class_by_source.get((name, digest))


@cache
def _read_entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; the metadata of all packages is read once per process."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        if point not in found.setdefault(point.name, []):
            found[point.name].append(point)
    return found


def _load_installed(group: str, name: str) -> tuple[object, PluginSource]:
    """Import the package of an entry point; returns the entry and its source.

    Raises PluginError for two packages with the same name, and for one that cannot be imported or is too
    large to be shipped.
    """
    points = _read_entry_points(group)[name]
    packages = sorted(
        {f"{point.dist.name} {point.dist.version}" if point.dist else point.value for point in points}
    )
    if len(packages) > 1:
        raise PluginError(f'{" and ".join(packages)} define {group} "{name}"; uninstall one of them')
    point = points[0]
    try:
        with redirect_stdout(sys.stderr):  # what it prints is not part of a command's output
            entry = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginError(
            f'{packages[0]} defines {group} "{name}" in {point.value}, which cannot be imported: '
            f"{describe_error(error)}"
        ) from error
    return entry, _read_source(point, packages[0])


def _read_source(point: EntryPoint, package: str) -> PluginSource:
    """All modules of the package that has the entry point, or its one module.

    A script whose name no module can have, such as `run-me.py`, cannot be imported and is left out.
    """
    top = point.module.partition(".")[0]
    file = sys.modules[top].__file__
    if file is None or not file.endswith(".py"):
        raise PluginError(f"{package} has no readable source of {top}, which a trial's identity needs")
    if Path(file).name != "__init__.py":
        return make_source(package, top, {f"{top}.py": read_source_text(Path(file))})
    folder = Path(file).parent
    relative_paths = {path: path.relative_to(folder.parent) for path in sorted(folder.rglob("*.py"))}
    paths = {
        path: name.as_posix()
        for path, name in relative_paths.items()
        if all(part.isidentifier() for part in name.with_suffix("").parts)
    }
    texts = {name: read_source_text(path) for path, name in paths.items()}
    return make_source(package, point.module, texts)


def register_module(module: ModuleType, source: PluginSource) -> list[str]:
    """Register every entry that the module of a source defines; returns noun and "name" of each.

    Raises PluginError for a name that is built in and for an invalid entry; then nothing is registered.
    """
    try:
        entries = [(registry, registry.find_entries(module)) for registry in _registries]
    except PluginError as error:
        raise PluginError(f"{source}: {error}") from None
    found = [
        (registry, name, registry.adapt(name, entry, source))
        for registry, by_name in entries
        for name, entry in by_name.items()
    ]
    for registry, name, _ in found:
        if name in registry.built_in or name in registry.reserved:
            raise PluginError(f'{source} defines the {registry.noun} "{name}", which is built in; rename it')
    for registry, name, entry in found:
        registry.add(name, entry, source)
    return [f'{registry.noun} "{name}"' for registry, name, _ in found]


def find_installed_file(registry: PluginRegistry[T], name: str, file: str) -> Path | None:
    """A file next to the module that an installed package has for an entry; None without one."""
    if name in registry.built_in or registry.find(name) is None:
        return None
    points = _read_entry_points(registry.group).get(name, [])
    modules = [sys.modules.get(point.module) for point in points[:1]]
    places = [Path(module.__file__).parent / file for module in modules if module and module.__file__]
    return next((place for place in places if place.is_file()), None)
