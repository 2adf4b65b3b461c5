"""Classification loss: binary cross-entropy of every anchor and class against the alignment weights."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lucid_models.assign import Assignment


def classification_loss(logits: Tensor, assignment: Assignment, normalizer: Tensor) -> Tensor:
    """Return the summed cross-entropy with logits (B, A, C), divided by ``normalizer``, 0-d.

    The target is the alignment weight at a positive's own class and 0 everywhere else; background anchors
    count. Source: Feng et al., "TOOD", arXiv:2108.07755, equation 4, without the focal factor.

    >>> index = torch.tensor([[0, -1]])
    >>> assignment = Assignment(index >= 0, index, index, torch.zeros(1, 2, 4), torch.tensor([[1.0, 0.0]]))
    >>> classification_loss(torch.tensor([[[2.0], [-2.0]]]), assignment, torch.tensor(1.0))
    tensor(0.2539)
    """
    # cross-entropy of logit x and target y is softplus(x) - x y, and y has one entry per positive
    own = logits.gather(-1, assignment.target_labels.clamp(min=0)[..., None]).squeeze(-1)
    hits = torch.where(assignment.fg_mask, assignment.align_weights * own, 0.0)
    return (softplus(logits).sum() - hits.sum()) / normalizer
