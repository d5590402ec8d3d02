"""Where top-k and top-p cut a row's ranking: a search that nothing relies on.

A cut keeps a beginning of the ranking (`vosti.spec.sampling`), which is named by its last token. What is found here is
a hint, to be checked: from it follows what is kept, and whether that is the cut, by comparisons and sums alone. So a
row may be ranked in part, and by a library's sort. That what is given is left as it is, is all that is asked of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vosti.spec.sampling import P_UNIT

if TYPE_CHECKING:
    import torch

RANKED = 2**22
"""Logits that are ranked at once, at most, unless one row has more: each takes about 40 bytes of memory meanwhile."""


def boundaries(
    logits: torch.Tensor,
    weights: torch.Tensor,
    sums: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
    head: int,
) -> torch.Tensor:
    """[n, 2] int32: of each row of logits [n, width] the tokens that end what top-k and what top-p keep.

    `weights` [n, width] int32 and `sums` [n, blocks] int64 are what `weights` leaves; `top_ks` and `top_ps` [n] int64.
    Looks at the `head` largest logits of a row, 1 ≤ head ≤ width, and finds both ends among them unless they lie behind
    or are level with what is left out; then they are any tokens. So is the first where top-k keeps the whole row.
    Where the tensors are on a GPU, nothing waits for it.
    """
    import torch

    inputs = (logits, weights, sums, top_ks, top_ps)
    parts = zip(*(one.split(max(1, RANKED // head)) for one in inputs), strict=True)
    return torch.cat([_ends(head, *part) for part in parts])


def _ends(
    head: int,
    logits: torch.Tensor,
    weights: torch.Tensor,
    sums: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
) -> torch.Tensor:
    """`boundaries`, of rows that are ranked at once."""
    import torch

    rows, width = logits.shape
    if head < width:
        seen = logits.topk(head, sorted=False).indices.sort(1).values
    else:
        seen = torch.arange(width, device=logits.device).expand(rows, width)
    # Of equal logits the lower token first; -0.0 + 0.0 is 0.0: a sort that looks at bits sees one zero.
    order = (logits.gather(1, seen) + 0.0).sort(dim=1, descending=True, stable=True).indices
    ranking = seen.gather(1, order)
    reached = weights.gather(1, ranking).cumsum(1, dtype=torch.int64)

    kth = (top_ks.clamp(1, head) - 1)[:, None]
    is_cut = (top_ks > 0) & (top_ks < width)
    total = torch.where(is_cut, reached.gather(1, kth)[:, 0], sums.sum(1))
    enough = (top_ps * total)[:, None]
    last = (reached * P_UNIT < enough).sum(1, keepdim=True).clamp(max=head - 1)
    return ranking.gather(1, torch.cat([kth, last], 1)).to(torch.int32)
