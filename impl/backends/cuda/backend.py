"""The CUDA backend: the device's launch plan run with Triton kernels over a pool of pages.

Weights, keys and values are bf16, logits float32. Every step: premises are checked on the host's copy, the metadata
goes to the device in one copy, the launches run (replayed from a graph where the batch is small), the flags of what is
not finite come back in one copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from vosti.impl.backend import Batch, Digests, ForwardResult
from vosti.impl.backends.cuda.binding import Shared
from vosti.impl.backends.cuda.certifier import Certifier
from vosti.impl.backends.cuda.digests import DIGESTS, DeviceDigests
from vosti.impl.backends.cuda.fingerprint import INTERPRETED, Device, architecture, entries_used, fingerprint
from vosti.impl.backends.cuda.forward import LARGEST_GRAPH, Forward
from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.memory import Memory
from vosti.impl.backends.cuda.metadata import SPLIT, Limits, Packed, Shape, pack, write
from vosti.impl.backends.cuda.plan import DevicePlan, Form, cache_names
from vosti.impl.errors import BatchError, DeviceMemoryError
from vosti.impl.models.config import ModelConfig
from vosti.impl.models.model import Model
from vosti.impl.models.plan import Parameter, Plan
from vosti.impl.options import PROVE_MISSING
from vosti.kernels.tables import Entry, Table
from vosti.spec.digests import WORD_SUM

MOST_FORWARDS = 64
"""Shapes of small batches that are kept bound, or as graphs."""


def layout(plan: Plan) -> Sequence[Parameter]:
    """How this backend keeps the parameters of a plan; see `vosti.impl.models.model.Layout`."""
    return lower(plan, Form.EXTEND, logit_block=1).parameters


class CudaBackend:
    """A model and one pool of pages; see `vosti.impl.backend.Backend`. Not safe for several threads at once."""

    def __init__(
        self,
        model: Model,
        table: Table,
        device: str | torch.device = "cuda",
        *,
        graphs: bool = True,
        certifier: Certifier | None = None,
    ) -> None:
        """A backend without a pool.

        Args:
            model: loaded with `layout`, for the device; its parameters' dtype is that of keys and values.
            table: which tiles may run.
            device: "cuda"; or "cpu", where kernels run in Triton's interpreter, on float32.
            graphs: whether forwards of small batches are captured, and replayed.
            certifier: lets binaries run; None for one that proves what has no certificate. (The interpreter has no
                binaries.)

        Raises:
            UncertifiedKernelError: if what a launch may run has no certificate, and gets none.
            UnsupportedModelError: if some launch of the model's plan is computed by no kernel.
            ConfigurationError: if some launch has no tile in the table.
        """
        self.model = model
        self.table = table
        self._device = torch.device(device)
        self._graphs = graphs
        self._memory = Memory(self._device)
        self._plans = plans_of(model.plan, model.config, table)
        self._parameters: Mapping[str, Tensor] = {
            **{alias: model.parameters[name] for alias, name in model.plan.tied},
            **model.parameters,
        }
        self._storage = next(parameter.dtype for parameter in model.parameters.values())
        self.most_split_rows = self._check_tiles()
        self._entries = entries_launched(self._plans.values(), table)
        self.certifier = certifier
        """None where there are no binaries."""

        if self._device.type == "cuda":
            self.certifier = certifier or Certifier(architecture(self._device), PROVE_MISSING)
            self.certifier.require(self._entries)
        self.limits = Limits(self.vocab_size, self.max_positions, 0, 1)
        self._pool = torch.empty(0)
        """Of all layers; `_caches` are parts of it."""

        self._caches: dict[str, Tensor] = {}
        self._digests = DeviceDigests(table, self._device)
        self._forwards: dict[Shape, Forward] = {}
        self._fingerprint: dict[str, object] | None = None

    def _check_tiles(self) -> int:
        """Find every launch's entry; return how many rows of a sequence the split form takes."""
        most = []
        for plan in self._plans.values():
            for launch in plan.launches:
                entry = self.table.entry(launch.operation, **dict(launch.sizes))
                if launch.operation == "attention_split":
                    most.append(entry.choices[-1].up_to_rows or 1)
        return min(most, default=1)

    # ------------------------------------------------------------ what the model is

    @property
    def vocab_size(self) -> int:
        """Number of logits of a row."""
        return self.model.config.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Token ids that end a sequence."""
        return self.model.config.eos_ids

    @property
    def max_positions(self) -> int:
        """Longest sequence, in tokens."""
        return self.model.config.max_positions

    @property
    def row_tile(self) -> int:
        """Any number of rows will do."""
        return 1

    def fingerprint(self) -> dict[str, object]:
        """The configuration W."""
        if self._fingerprint is None:
            certifier = self.certifier
            certificates = INTERPRETED if certifier is None else certifier.digest(self._entries)
            device = Device.of(self._device)
            self._fingerprint = fingerprint(self.model, self._plans.values(), self.table, device, certificates)
        return dict(self._fingerprint)

    # ------------------------------------------------------------ the pool

    def allocate(self, pages: int, page_size: int) -> None:
        """Make a fresh pool, all zeros.

        Raises `BatchError` unless both numbers are at least 1, `DeviceMemoryError` if there is no room, and
        `UncertifiedKernelError` if what runs with pages of this size has no certificate, and gets none.
        """
        if pages < 1 or page_size < 1:
            raise BatchError(f"A pool needs at least one page of at least one slot, not {pages} of {page_size}.")
        if self.certifier is not None:
            self.certifier.require(self._entries, (page_size,))
        self.limits = Limits(self.vocab_size, self.max_positions, pages, page_size)
        self._forwards = {}
        self._caches = {}
        self._pool = torch.empty(0)  # the one before goes first
        kv_shapes, slots = self.model.plan.kv_shapes, pages * page_size
        elements = 2 * slots * sum(kv.heads * kv.head_dim for kv in kv_shapes)
        try:
            self._pool = torch.zeros(elements, dtype=self._storage, device=self._device)
        except torch.OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"A pool of {pages} pages of {page_size} slots takes {elements * self._storage.itemsize / 1e9:.1f} GB, "
                "more than the GPU has left: give fewer pages."
            ) from error
        begin = 0
        for layer, kv in enumerate(kv_shapes):
            for name in cache_names(layer):
                end = begin + slots * kv.heads * kv.head_dim
                self._caches[name] = self._pool[begin:end].view(slots, kv.heads, kv.head_dim)
                begin = end
        self._digests.lay_out(self._caches.values())

    def poison(self) -> None:
        """Fill all slots with NaN."""
        self._pool.fill_(float("nan"))

    def slot_bytes(self, slots: Sequence[int]) -> list[bytes]:
        """Of each slot, layer by layer, its key and its value. Raises `BatchError` for a slot out of range."""
        self._check_slots(slots)
        index = torch.tensor(list(slots), dtype=torch.int64, device=self._device)
        stored = torch.cat([cache.index_select(0, index).flatten(1) for cache in self._caches.values()], 1)
        return [row.tobytes() for row in stored.view(torch.uint8).cpu().numpy()]

    @property
    def digest_algorithm(self) -> str:
        """The word sum."""
        return WORD_SUM.name

    def slot_digests(self, slots: Sequence[int]) -> Digests:
        """Begin to digest slots. Raises `BatchError` for a slot out of range."""
        self._check_slots(slots)
        with self._watching():
            return self._digests.slots(self._pool, slots)

    def row_digests(self, logits: Tensor) -> Digests:
        """Begin to digest rows of logits."""
        with self._watching():
            return self._digests.rows(logits)

    def _watching(self) -> AbstractContextManager[None]:
        """Where kernels are launched: binaries have to be certified."""
        return nullcontext() if self.certifier is None else self.certifier.watching()

    def _check_slots(self, slots: Sequence[int]) -> None:
        count = self.limits.pages * self.limits.page_size
        if any(not 0 <= slot < count for slot in slots):
            raise BatchError(f"Slots must lie between 0 and {count - 1}.")

    # ------------------------------------------------------------ the forward

    def forward(self, batch: Batch) -> ForwardResult:
        """Compute the batch's rows.

        Raises `BatchError` before any slot is changed, and `UncertifiedKernelError` if a binary was launched that is
        not the one that was proved.
        """
        if not self._caches:
            raise BatchError("There is no pool; call allocate(pages, page_size) before the first forward.")
        packed = pack(batch, self.limits)
        forward = self.forward_of(self.shape_of(packed))
        write(packed, forward.places, forward.host)
        with self._watching():
            forward.run()
        logits = forward.logits[: len(batch.logit_rows)].clone()
        largest = self._memory.take_host("largest", len(logits))
        largest.copy_(first_largest(logits), non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        rows = len(batch.tokens)
        kv = np.logical_or.reduce([forward.flagged(name)[:rows] for name in forward.kv_flags])
        flagged = forward.flagged("logit_flags")[: len(logits)]
        return ForwardResult(logits, ~kv, flagged, largest.numpy().astype(np.int64), self._watching)

    def shape_of(self, packed: Packed) -> Shape:
        """The shape that the batch is run in: padded, so that few shapes occur, unless it is large."""
        count, most, wanted = len(packed.batch.tokens), packed.most_rows, len(packed.batch.logit_rows)
        small = count <= LARGEST_GRAPH
        rows, sequences = _padded(count) if small else count, _padded(len(packed.counts))
        if small and most <= self.most_split_rows:
            return Shape(
                form=Form.SPLIT,
                rows=rows,
                sequences=sequences,
                selected=rows if wanted else 0,
                most_rows=min(_padded(most), self.most_split_rows),
                longest=_padded(-(-packed.longest // SPLIT)) * SPLIT,
            )
        return Shape(
            form=Form.EXTEND,
            rows=rows,
            sequences=sequences,
            selected=max(_padded(wanted), sequences) if wanted else 0,
            most_rows=rows if small else most,
            longest=0,
        )

    def forward_of(self, shape: Shape) -> Forward:
        """The forward of a shape; those of small batches are kept, the ones that were used last."""
        forward = self._forwards.pop(shape, None)
        if forward is None or forward.generation != self._memory.generation:
            forward = Forward(shape, self._shared, self._memory)
        if shape.rows <= LARGEST_GRAPH:
            self._forwards[shape] = forward
            if len(self._forwards) > MOST_FORWARDS:
                self._forwards.pop(next(iter(self._forwards)))
        return forward

    @property
    def _shared(self) -> Shared:
        return Shared(
            plans=self._plans,
            parameters=self._parameters,
            table=self.table,
            storage=self._storage,
            page_size=self.limits.page_size,
            table_width=self.limits.table_width,
            caches=self._caches,
            graphs=self._graphs,
        )

    @property
    def plans(self) -> Mapping[Form, DevicePlan]:
        """The launches of a forward, by the form of attention."""
        return self._plans


def plans_of(plan: Plan, config: ModelConfig, table: Table) -> Mapping[Form, DevicePlan]:
    """The launches of a model's forward, by the form of attention. Raises what `CudaBackend` raises."""
    capped = int(config.final_softcap is not None)
    block = table.entry("logits", width=config.vocab_size, capped=capped).choices[0].tile.block("BLOCK")
    return {form: lower(plan, form, logit_block=block) for form in Form}


def entries_launched(plans: Iterable[DevicePlan], table: Table) -> list[Entry]:
    """The entries of what forwards launch, and of the digests. Raises `ConfigurationError` if one is missing."""
    return [*entries_used(plans, table), *(table.entry(name) for name in DIGESTS)]


def first_largest(logits: Tensor) -> Tensor:
    """[n, vocabulary] → [n] int32: the lowest index of each row's largest number, whatever order a reduction has."""
    places = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
    beyond = logits.shape[1]
    return torch.where(logits == logits.amax(1, keepdim=True), places, beyond).amin(1) if len(logits) else places[:0]


def _padded(count: int) -> int:
    """The next power of two, or 0."""
    return 1 << (count - 1).bit_length() if count else 0
