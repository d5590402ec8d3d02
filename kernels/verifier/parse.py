"""The text of typed IR → `vosti.kernels.verifier.ir`.

The text is that of TTIR as Triton 3.6 to 3.9 print it, from `Kernel.ttir` or from a compilation at run time
(`asm["ttir"]`), with line information or without. One line is one operation, but for those that hold blocks. All of the
text is read, and what is not legal (`vosti.kernels.verifier.legal`) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

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
_FUNCTION = re.compile(r"tt\.func public @(\w+)\((.*)\) attributes \{noinline = false\} \{")
_PARAMETER = rf'%([\w$.-]+): ({_TYPE})(?: \{{tt\.divisibility = (\d+) : i32\}})?(?: loc\("([^"]*)"(?:\(#loc\d*\))?\))?'
_FOR = re.compile(
    rf"scf\.for ({_NAME}) = ({_NAME}) to ({_NAME}) step ({_NAME})(?: iter_args\((.*)\) -> \((.*)\))? +: (\w+) \{{"
)
_IF = re.compile(rf"scf\.if ({_NAME})(?: -> \((.*)\))? \{{")
_REDUCE = re.compile(rf'"(tt\.reduce|tt\.scan)"\(({_NAME})\) <\{{(.*)\}}> \(\{{')
_ARGUMENTS = re.compile(rf"\^bb0\((%[\w$.-]+): ({_TYPE}), (%[\w$.-]+): ({_TYPE})\):")


@dataclass(frozen=True)
class _Line:
    number: int
    text: str
    location: str


@dataclass
class _Parser:
    lines: list[_Line]
    locations: Mapping[str, str]
    at: int = 0
    values: int = 0
    scopes: list[dict[str, tuple[Value, ...]]] = field(default_factory=list)

    # ------------------------------------------------------------ lines

    @property
    def line(self) -> _Line:
        """The line to read next."""
        if self.at == len(self.lines):
            raise RefusedError("The typed IR ends within a block.")
        return self.lines[self.at]

    def refused(self, reason: str, line: _Line | None = None) -> RefusedError:
        """The error that names the place of a line; one that opens a block has that of the first line within."""
        line = line or self.line
        places = (_location(later.location, self.locations) for later in self.lines[self.lines.index(line) :])
        place = next((place for place in places if place is not None), None)
        return RefusedError(f"{reason}, at {place or f'line {line.number} of the typed IR'}: {line.text}")

    def take(self, pattern: str) -> re.Match[str]:
        """Read a line that must look like this."""
        match = re.fullmatch(pattern, self.line.text)
        if match is None:
            raise self.refused("unexpected text")
        self.at += 1
        return match

    # ------------------------------------------------------------ values

    def value(self, name: str, type_: Type) -> Value:
        """A new value."""
        self.values += 1
        return Value(self.values - 1, name, type_)

    def define(self, names: str, types: tuple[Type, ...]) -> tuple[Value, ...]:
        """The results of an operation: %a, or %a, %b, or %a:2 for two that are called %a#0 and %a#1."""
        packed = re.fullmatch(r"(%[\w$.-]+):(\d+)", names)
        single = names.split(", ") if names else []
        count = int(packed[2]) if packed else len(single)
        if count != len(types) or not all(packed or re.fullmatch(r"%[\w$.-]+", name) for name in single):
            raise self.refused(f"{len(types)} results are needed, not {names or 'none'}")
        if packed:
            values = tuple(self.value(packed[1][1:], type_) for type_ in types)
            made = {packed[1]: values}
        else:
            values = tuple(self.value(name[1:], type_) for name, type_ in zip(single, types, strict=True))
            made = {name: (value,) for name, value in zip(single, values, strict=True)}
        if len(made) < len(single) or any(name in scope for scope in self.scopes for name in made):
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

    def block(self, arguments: tuple[Value, ...], names: tuple[str, ...] = ()) -> Block:
        """A block, up to the line that closes it, which is not read."""
        self.scopes.append({name: (value,) for name, value in zip(names, arguments, strict=True)})
        ops: list[Op] = []
        while not self.line.text.startswith("}"):
            ops.append(self.op())
        self.scopes.pop()
        return Block(arguments, tuple(ops))

    def op(self) -> Op:
        """An operation with its blocks."""
        match = _OP.fullmatch(self.line.text)
        if match is None:
            raise self.refused("this is not an operation")
        results, name, rest = match[1] or "", match[2], match[3]
        text = name + rest
        if loop := _FOR.fullmatch(text):
            return self.loop(results, loop)
        if branch := _IF.fullmatch(text):
            return self.branch(results, branch)
        if reduction := _REDUCE.fullmatch(text):
            return self.reduction(results, reduction)
        op = self.plain(results, name, rest)
        self.at += 1
        return op

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

    def legal(self, results: str, name: str, middle: str, types: str, given: dict[str, Attribute]) -> Op:
        """The operation, if the table has it so."""
        form, line = FORMS[name], self.line
        operands = tuple(self.use(operand) for operand in re.findall(_NAME, middle))
        match = re.fullmatch(form.middle, re.sub(_NAME, "%", middle))
        if match is None or given.keys() != form.attributes:
            raise self.refused(f"{name} is not understood in this form")
        attributes = {**given, **{word: value for word, value in match.groupdict().items() if value is not None}}
        written = tuple(self.type(type_) for type_ in re.findall(_TYPE, types))
        if not re.fullmatch(form.types, re.sub(_TYPE, "T", types)) or not form.fits(written, attributes):
            raise self.refused(f"{name} has types that do not fit")
        expected, produced = form.sides(written)
        found = tuple(operand.type for operand in operands)
        if found != expected[: len(found)] or (len(found) < len(expected) and name not in ("tt.load", "tt.store")):
            raise self.refused(f"{name} has operands whose types are not those written")
        if name == "arith.constant":
            attributes["value"] = self.constant(str(attributes["value"]), written[0])
        place = _location(line.location, self.locations)
        return Op(name, operands, self.define(results, produced), tuple(attributes.items()), (), place, line.number)

    def loop(self, results: str, match: re.Match[str]) -> Op:
        """A loop over a range."""
        line, variable = self.line, self.type(match[7])
        pairs = re.fullmatch(rf"{_NAME} = {_NAME}(?:, {_NAME} = {_NAME})*", match[5]) if match[5] else None
        carried = re.findall(rf"({_NAME}) = ({_NAME})", match[5]) if pairs else []
        types = self.types(match[6] or "")
        operands = tuple(
            self.use(name) for name in (match[2], match[3], match[4], *(initial for _, initial in carried))
        )
        if not variable.is_integer or tuple(value.type for value in operands) != (variable,) * 3 + types:
            raise self.refused("scf.for has operands whose types are not those written")
        names = (match[1], *(name for name, _ in carried))
        self.at += 1
        arguments = tuple(self.value(name[1:], type_) for name, type_ in zip(names, (variable, *types), strict=True))
        body = self.terminated(self.block(arguments, names), "scf.yield", types)
        attributes = self.attributes(self.take(r"\}(?: \{(.*)\})?")[1] or "")
        if not attributes.keys() <= LOOP_HINTS:
            raise self.refused("scf.for has an attribute that is not understood", self.lines[self.at - 1])
        return self.holding("scf.for", operands, results, types, line, (body,), attributes)

    def branch(self, results: str, match: re.Match[str]) -> Op:
        """One of two blocks."""
        line, types, condition = self.line, self.types(match[2] or ""), self.use(match[1])
        if condition.type != Type("i1"):
            raise self.refused("scf.if has a condition that is not a truth value")
        self.at += 1
        blocks = [self.block(())]
        if self.line.text == "} else {":
            self.at += 1
            blocks.append(self.block(()))
        else:
            blocks.append(Block((), ()))
        self.take(r"\}")
        regions = tuple(self.terminated(block, "scf.yield", types) for block in blocks)
        return self.holding("scf.if", (condition,), results, types, line, regions, {})

    def reduction(self, results: str, match: re.Match[str]) -> Op:
        """An axis folded by the operation of a block, as a whole or up to each lane."""
        name, line, operand, attributes = match[1], self.line, self.use(match[2]), self.attributes(match[3])
        self.at += 1
        header = self.take(_ARGUMENTS.pattern)
        element = operand.type.with_shape()
        if (self.type(header[2]), self.type(header[4])) != (element, element):
            raise self.refused(f"{name} has a block of other types")
        names = (header[1], header[3])
        block = self.block(tuple(self.value(one[1:], element) for one in names), names)
        block = self.terminated(block, f"{name}.return", (element,))
        closing = self.take(r"\}\) : (.*)")
        self.at -= 1
        op = self.legal(results, name, match[2], closing[1], attributes)
        self.at += 1
        return Op(op.name, op.operands, op.results, op.attributes, (block,), op.location, line.number)

    def terminated(self, block: Block, name: str, types: tuple[Type, ...]) -> Block:
        """The block with its terminator, which must give these types."""
        ops = block.ops if block.ops and block.ops[-1].name in TERMINATORS else (*block.ops, Op(name, (), ()))
        inner = [op.name for op in ops if op.name in TERMINATORS]
        if inner != [name] or tuple(value.type for value in ops[-1].operands) != types:
            raise self.refused(f"a block does not end in {name} of {[str(type_) for type_ in types]}")
        return Block(block.arguments, ops)

    def holding(
        self,
        name: str,
        operands: tuple[Value, ...],
        results: str,
        types: tuple[Type, ...],
        line: _Line,
        regions: tuple[Block, ...],
        attributes: dict[str, Attribute],
    ) -> Op:
        """An operation with blocks, whose last line, with the location, was just read."""
        place = _location(self.lines[self.at - 1].location, self.locations)
        self.at -= 1
        defined = self.define(results, types)
        self.at += 1
        return Op(name, operands, defined, tuple(attributes.items()), regions, place, line.number)

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
        value = {"true": 1, "false": 0}.get(text, -1) if type_.is_boolean else -1
        if type_.is_float and re.fullmatch(r"-?\d+\.\d+(?:[eE][+-]?\d+)?", text):
            value = float_bits(type_.element, float(text))
        elif type_.is_float and re.fullmatch("0x[0-9A-F]+", text):
            value = int(text, 16)
        elif type_.is_integer and not type_.is_boolean and re.fullmatch(r"-?\d+", text):
            value, half = int(text), 1 << (INTEGER_WIDTHS[type_.element] - 1)
            if -half <= value < half:
                return value
            value = -1
        if not 0 <= value < 1 << (INTEGER_WIDTHS | FLOAT_WIDTHS)[type_.element]:
            raise self.refused(f"the constant {text} is not understood")
        return value

    def kernel(self) -> Kernel:
        """The module: one function."""
        self.take(r"module \{")
        name, parameters = self.take(_FUNCTION.pattern).groups()
        self.at -= 1
        found = re.findall(_PARAMETER, parameters)
        if re.sub(_PARAMETER, "P", parameters) != ", ".join("P" * len(found)):
            raise self.refused("a parameter is not understood")
        made = tuple(
            # Triton 3.8 writes x.shape.0 where 3.7 writes x again.
            Parameter(self.value(name, self.type(type_)), (source or name).partition(".")[0], int(divisibility or 1))
            for name, type_, divisibility, source in found
        )
        self.at += 1
        values = tuple(parameter.value for parameter in made)
        body = self.block(values, tuple(f"%{value.name}" for value in values))
        body = self.terminated(body, "tt.return", ())
        self.take(r"\}")
        self.take(r"\}")
        if self.at != len(self.lines):
            raise self.refused("unexpected text after the module")
        return Kernel(name, made, body)


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
