"""The text of typed IR → `vosti.kernels.verifier.ir`.

The text is that of TTIR as Triton 3.6 to 3.9 print it, from `Kernel.ttir` or from a compilation at run time
(`asm["ttir"]`), with line information or without. One line is one operation, but for those that hold blocks. All of the
text is read, and what is not legal (`vosti.kernels.verifier.legal`) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.ir import (
    FLOAT_WIDTHS,
    INTEGER_WIDTHS,
    Attribute,
    Block,
    Kernel,
    Kind,
    Location,
    Op,
    Parameter,
    Type,
    Value,
    float_bits,
)
from vosti.kernels.verifier.legal import FORMS, LOOP_HINTS, TERMINATORS

_NAME = r"%[\w$.-]+(?:#\d+)?"
_TYPE = r"tensor<[\dx]+x(?:!tt\.ptr<\w+>|\w+)>|!tt\.tensordesc<(?:tensor<[^<>]*>|[^<>]*)>|!tt\.ptr<\w+>|[a-z]+\d+"
_ATTRIBUTE = r'([\w.]+)(?: = (array<i32: [\d, ]+>|"[^"]*"|-?\d+ : \w+|true|false))?'
_OP = re.compile(r'(?:(%[^=]*) = )?("?[a-z]+\.[\w.]+"?)(.*)')
_FUNCTION = r"tt\.func public @(\w+)\((.*)\) attributes \{noinline = false\} \{"
_PARAMETER = rf'(%[\w$.-]+): ({_TYPE})(?: \{{tt\.divisibility = (\d+) : i32\}})?(?: loc\("([^"]*)"(?:\(#loc\d*\))?\))?'
_PAIRS = rf"{_NAME} = {_NAME}(?:, {_NAME} = {_NAME})*"
_FOR = re.compile(
    rf"scf\.for ({_NAME}) = ({_NAME}) to ({_NAME}) step ({_NAME})(?: iter_args\(({_PAIRS})\) -> \((.*)\))? +: (\w+) \{{"
)
_IF = re.compile(rf"scf\.if ({_NAME})(?: -> \((.*)\))? \{{")
_REDUCE = re.compile(rf'"(tt\.reduce|tt\.scan)"\(({_NAME})\) <\{{(.*)\}}> \(\{{')
_ARGUMENTS = rf"\^bb0\((%[\w$.-]+): ({_TYPE}), (%[\w$.-]+): ({_TYPE})\):"


@dataclass(frozen=True)
class _Line:
    number: int
    text: str
    location: str


@dataclass
class _Parser:
    lines: list[_Line]
    locations: Mapping[str, str]
    at: int = -1
    values: int = 0
    scopes: list[dict[str, tuple[Value, ...]]] = field(default_factory=list)

    # ------------------------------------------------------------ lines

    @property
    def line(self) -> _Line:
        """The line that is read."""
        return self.lines[self.at]

    def refused(self, reason: str) -> RefusedError:
        """The error that names the line's place; one that opens a block has that of the first line within."""
        places = (_location(later.location, self.locations) for later in self.lines[self.at :])
        place = next((place for place in places if place is not None), None)
        return RefusedError(f"{reason}, at {place or f'line {self.line.number} of the typed IR'}: {self.line.text}")

    def advance(self) -> None:
        """On to the next line."""
        self.at += 1
        if self.at == len(self.lines):
            raise RefusedError("The typed IR ends within a block.")

    def like(self, pattern: str) -> re.Match[str]:
        """The line, which must look like this."""
        match = re.fullmatch(pattern, self.line.text)
        if match is None:
            raise self.refused("unexpected text")
        return match

    # ------------------------------------------------------------ values

    def value(self, name: str, type_: Type) -> Value:
        """A new value."""
        self.values += 1
        return Value(self.values - 1, name[1:], type_)

    def define(self, names: str, types: tuple[Type, ...]) -> tuple[Value, ...]:
        """The results of an operation: %a, or %a, %b, or %a:2 for two that are called %a#0 and %a#1."""
        packed = re.fullmatch(r"(%[\w$.-]+):(\d+)", names)
        single = [packed[1]] * int(packed[2]) if packed else names.split(", ") if names else []
        if len(single) != len(types) or not all(re.fullmatch(r"%[\w$.-]+", name) for name in single):
            raise self.refused(f"{len(types)} results are needed, not {names or 'none'}")
        values = tuple(self.value(name, type_) for name, type_ in zip(single, types, strict=True))
        made = {packed[1]: values} if packed else {f"%{value.name}": (value,) for value in values}
        if (not packed and len(made) < len(single)) or any(name in scope for scope in self.scopes for name in made):
            raise self.refused(f"{names} is defined twice")
        self.scopes[-1].update(made)
        return values

    def use(self, name: str) -> Value:
        """The value of a name, in the innermost scope that has it."""
        base, _, index = name.partition("#")
        for scope in reversed(self.scopes):
            if base in scope:
                values = scope[base]
                if (len(values) > 1) == bool(index) and int(index or 0) < len(values):
                    return values[int(index or 0)]
        raise self.refused(f"{name} is not defined")

    # ------------------------------------------------------------ operations

    def block(
        self, end: str, types: tuple[Type, ...], arguments: tuple[Value, ...] = (), names: tuple[str, ...] = ()
    ) -> Block:
        """A block, up to the line that closes it, with its terminator, which must give these types."""
        self.scopes.append({name: (value,) for name, value in zip(names, arguments, strict=True)})
        ops: list[Op] = []
        self.advance()
        while not self.line.text.startswith("}"):
            ops.append(self.op())
            self.advance()
        self.scopes.pop()
        return self.ended(ops, end, types, arguments)

    def ended(self, ops: list[Op], end: str, types: tuple[Type, ...], arguments: tuple[Value, ...] = ()) -> Block:
        """The block of these operations, with its terminator where the text leaves it out."""
        if not ops or ops[-1].name not in TERMINATORS:
            ops.append(Op(end, (), ()))
        inner = [op.name for op in ops if op.name in TERMINATORS]
        if inner != [end] or tuple(value.type for value in ops[-1].operands) != types:
            raise self.refused(f"a block does not end in {end} of {[str(type_) for type_ in types]}")
        return Block(arguments, tuple(ops))

    def op(self) -> Op:
        """An operation with its blocks, the last line of which is read then."""
        match = _OP.fullmatch(self.line.text)
        if match is None:
            raise self.refused("this is not an operation")
        results, text, number = match[1] or "", match[2] + match[3], self.line.number
        for pattern, holding in ((_FOR, self.loop), (_IF, self.branch), (_REDUCE, self.reduction)):
            if found := pattern.fullmatch(text):
                return replace(holding(results, found), line=number)
        return self.plain(results, match[2], match[3])

    def plain(self, results: str, name: str, rest: str) -> Op:
        """An operation without blocks."""
        if name not in FORMS:
            raise self.refused(f"the operation {name.strip(chr(34))} is not understood")
        braces = re.fullmatch(r"(.*?) ?<?\{(.*)\}>?(.*)", rest)
        given = self.attributes(braces[2]) if braces else {}
        middle, _, types = (braces[1] + braces[3] if braces else rest).strip().partition(": ")
        if middle in ("true", "false") and not types:
            types = "i1"
        return self.legal(results, name, middle.strip(), types, given)

    def legal(
        self, results: str, name: str, middle: str, types: str, given: dict[str, Attribute], *blocks: Block
    ) -> Op:
        """The operation, if the table has it so."""
        form = FORMS[name]
        operands = tuple(self.use(operand) for operand in re.findall(_NAME, middle))
        match = re.fullmatch(form.middle, re.sub(_NAME, "%", middle))
        if match is None or given.keys() != form.attributes:
            raise self.refused(f"{name} is not understood in this form")
        attributes = {**given, **{word: value for word, value in match.groupdict().items() if value is not None}}
        written = tuple(self.type(type_) for type_ in re.findall(_TYPE, types))
        fits = re.fullmatch(form.types, re.sub(_TYPE, "T", types))
        sides = form.sides(written, attributes) if fits else None
        if sides is None:
            raise self.refused(f"{name} has types that do not fit")
        expected, produced = sides
        found = tuple(operand.type for operand in operands)
        if found != expected[: len(found)] or (len(found) < len(expected) and name not in ("tt.load", "tt.store")):
            raise self.refused(f"{name} has operands whose types are not those written")
        if name == "arith.constant":
            attributes["value"] = self.constant(str(attributes["value"]), written[0])
        return self.made(name, operands, results, produced, attributes, blocks)

    def made(
        self,
        name: str,
        operands: tuple[Value, ...],
        results: str,
        types: tuple[Type, ...],
        attributes: dict[str, Attribute],
        blocks: tuple[Block, ...],
    ) -> Op:
        """The operation, whose results are defined from here on. Its location is at its last line."""
        place = _location(self.line.location, self.locations)
        return Op(
            name, operands, self.define(results, types), tuple(attributes.items()), blocks, place, self.line.number
        )

    def loop(self, results: str, match: re.Match[str]) -> Op:
        """A loop over a range."""
        variable, types = self.type(match[7]), self.types(match[6] or "")
        carried = re.findall(rf"({_NAME}) = ({_NAME})", match[5] or "")
        operands = tuple(self.use(name) for name in (*match.group(2, 3, 4), *(initial for _, initial in carried)))
        if not variable.is_integer or tuple(value.type for value in operands) != (variable,) * 3 + types:
            raise self.refused("scf.for has operands whose types are not those written")
        names = (match[1], *(name for name, _ in carried))
        arguments = tuple(self.value(name, type_) for name, type_ in zip(names, (variable, *types), strict=True))
        body = self.block("scf.yield", types, arguments, names)
        attributes = self.attributes(self.like(r"\}(?: \{(.*)\})?")[1] or "")
        if not attributes.keys() <= LOOP_HINTS:
            raise self.refused("scf.for has an attribute that is not understood")
        return self.made("scf.for", operands, results, types, attributes, (body,))

    def branch(self, results: str, match: re.Match[str]) -> Op:
        """One of two blocks."""
        types, condition = self.types(match[2] or ""), self.use(match[1])
        if condition.type != Type("i1"):
            raise self.refused("scf.if has a condition that is not a truth value")
        yes = self.block("scf.yield", types)
        no = self.block("scf.yield", types) if self.line.text == "} else {" else self.ended([], "scf.yield", types)
        self.like(r"\}")
        return self.made("scf.if", (condition,), results, types, {}, (yes, no))

    def reduction(self, results: str, match: re.Match[str]) -> Op:
        """An axis folded by the operation of a block, as a whole or up to each lane."""
        name, operand, attributes = match[1], match[2], self.attributes(match[3])
        element = self.use(operand).type.with_shape()
        self.advance()
        one, its, other, others = self.like(_ARGUMENTS).groups()
        if (self.type(its), self.type(others)) != (element, element):
            raise self.refused(f"{name} has a block of other types")
        arguments = self.value(one, element), self.value(other, element)
        block = self.block(f"{name}.return", (element,), arguments, (one, other))
        return self.legal(results, name, operand, self.like(r"\}\) : (.*)")[1], attributes, block)

    # ------------------------------------------------------------ pieces

    def types(self, text: str) -> tuple[Type, ...]:
        """Types, separated by commas."""
        if not re.fullmatch("(?:T(?:, T)*)?", re.sub(_TYPE, "T", text)):
            raise self.refused(f"{text} is not a list of types")
        return tuple(self.type(type_) for type_ in re.findall(_TYPE, text))

    def type(self, text: str) -> Type:
        """A type."""
        kind, inner = Kind.NUMBER, text
        if match := re.fullmatch(r"!tt\.tensordesc<(?:tensor<(.*)>|(.*))>", text):
            kind, inner = Kind.DESCRIPTOR, match[1] or match[2]
        elif match := re.fullmatch(r"tensor<(.*)>", text):
            inner = match[1]
        match = re.fullmatch(r"((?:\d+x)*)(?:!tt\.ptr<(\w+)>|(\w+))", inner)
        element = (match[2] or match[3]) if match else ""
        if match is None or element not in INTEGER_WIDTHS | FLOAT_WIDTHS:
            raise self.refused(f"the type {text} is not understood")
        shape = tuple(int(length) for length in match[1].split("x")[:-1])
        return Type(element, shape, Kind.POINTER if match[2] and kind is Kind.NUMBER else kind)

    def attributes(self, text: str) -> dict[str, Attribute]:
        """The attributes in braces."""
        if text and not re.fullmatch(f"{_ATTRIBUTE}(?:, {_ATTRIBUTE})*", text):
            raise self.refused(f"the attributes {text} are not understood")
        return {name: _attribute(value) for name, value in re.findall(_ATTRIBUTE, text)}

    def constant(self, text: str, type_: Type) -> int:
        """The value of a constant: an integer, or the bit pattern of a number."""
        text = text.removeprefix("dense<").removesuffix(">")
        values = 1 << (INTEGER_WIDTHS | FLOAT_WIDTHS)[type_.element]
        if type_.is_boolean and text in ("true", "false"):
            return int(text == "true")
        if type_.is_float and re.fullmatch(r"-?\d+\.\d+(?:[eE][+-]?\d+)?", text):
            return float_bits(type_.element, float(text))
        if type_.is_float and re.fullmatch("0x[0-9A-F]+", text) and int(text, 16) < values:
            return int(text, 16)
        number = type_.is_integer and not type_.is_boolean and re.fullmatch(r"-?\d+", text)
        if not number or not -values // 2 <= int(text) < values // 2:
            raise self.refused(f"the constant {text} is not understood")
        return int(text)

    def kernel(self) -> Kernel:
        """The module: one function."""
        self.advance()
        self.like(r"module \{")
        self.advance()
        name, text = self.like(_FUNCTION).groups()
        found = re.findall(_PARAMETER, text)
        if re.sub(_PARAMETER, "P", text) != ", ".join("P" * len(found)):
            raise self.refused("a parameter is not understood")
        parameters = tuple(
            # Triton 3.8 writes x.shape.0 where 3.7 writes x again.
            Parameter(self.value(one, self.type(type_)), (source or one[1:]).partition(".")[0], int(divisibility or 1))
            for one, type_, divisibility, source in found
        )
        values = tuple(parameter.value for parameter in parameters)
        body = self.block("tt.return", (), values, tuple(one for one, *_ in found))
        self.like(r"\}")
        self.advance()
        self.like(r"\}")
        if self.line is not self.lines[-1]:
            self.advance()
            raise self.refused("unexpected text after the module")
        return Kernel(name, parameters, body)


def _attribute(text: str) -> Attribute:
    """An attribute's value; 1 for one that has none."""
    if text.startswith("array"):
        return tuple(int(number) for number in text[len("array<i32: ") : -1].split(", "))
    if text.startswith('"'):
        return text[1:-1]
    return {"": 1, "true": 1, "false": 0}[text] if text in ("", "true", "false") else int(text.split(" : ")[0])


def _location(text: str, locations: Mapping[str, str]) -> Location | None:
    """The line of source that the text of a location names, if any."""
    if text in locations:
        return _location(locations[text], locations)
    if match := re.fullmatch(r'"(.*)":(\d+):(\d+)', text):
        return Location(match[1], int(match[2]), int(match[3]))
    if match := re.fullmatch(r'"[^"]*"\((.*)\)', text):
        return _location(match[1], locations)
    if match := re.fullmatch(r"callsite\((#loc\d*) at (#loc\d*)\)", text):
        inner, caller = _location(match[1], locations), _location(match[2], locations)
        return Location(inner.file, inner.line, inner.column, caller) if inner else caller
    return None


def parse(text: str) -> Kernel:
    """The kernel of a text of typed IR. Raises `RefusedError` for whatever is not legal in it."""
    locations, lines = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.fullmatch(r"(#loc\d*) = loc\((.*)\)", line):
            locations[match[1]] = match[2]
        elif line.strip():
            # The function's header and the arguments of blocks have locations within the line.
            inner = line if "tt.func" in line else re.sub(r" loc\((?:[^()]|\([^()]*\))*\)(?=[,)])", "", line)
            body, _, place = inner.strip().partition(" loc(") if not inner.endswith("{") else (inner.strip(), "", "")
            lines.append(_Line(number, body, place[:-1]))
    return _Parser(lines, locations).kernel()
