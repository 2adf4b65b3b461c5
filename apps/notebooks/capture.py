# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # lucid-capture: replay a training step, and prove that nothing changed
#
# With small batches a GPU waits for Python to launch kernels. A recording removes that wait; a guard decides, on every
# call, whether the recording still tells the truth. Without a GPU the tape stands in: it makes nothing faster, and
# shows the same semantics.

# %%
import torch
from torch import nn

from lucid_capture import (
    CudaBackend,
    GuardedRegion,
    ModuleCertificate,
    Reason,
    ReplayReport,
    TapeBackend,
    doctor,
    verify,
)

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = CudaBackend() if device == "cuda" else TapeBackend()

# %% [markdown]
# ## Ask the doctor first
#
# It runs a function once, for real, and names each line that no recording can hold.


# %%
def loss_of(outputs, targets):
    wrong = (outputs - targets)[targets > 0]  # the number of rows depends on the values
    if wrong.abs().max() > 10:  # the host waits for the device
        wrong = wrong / 10
    return wrong.square().mean()


print(doctor(loss_of, torch.randn(8), torch.randn(8)))

# %% [markdown]
# The same in a form of fixed shape: a mask instead of a selection, `where` instead of `if`.


# %%
def fixed_loss(outputs, targets):
    wrong = torch.where(targets > 0, outputs - targets, 0.0)
    wrong = torch.where(wrong.abs().max() > 10, wrong / 10, wrong)
    return wrong.square().sum() / (targets > 0).sum().clamp_min(1)


print(doctor(fixed_loss, torch.randn(8), torch.randn(8)))

# %% [markdown]
# ## Record a network
#
# Forward and backward replay; loss, optimizer and loop stay yours.

# %%
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.Linear(288, 1)).to(
    device
)
region = GuardedRegion("net", net, backend=backend, certificate=ModuleCertificate(net), differentiable=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def step(images, targets):
    loss = fixed_loss(region(images).flatten(), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


for _ in range(5):
    step(torch.randn(4, 3, 8, 8, device=device), torch.rand(4, device=device))
print(region.counts)

# %% [markdown]
# ## Prove it
#
# `verify` runs the same batches eagerly twice and replayed once from one state, and compares every byte. It does not
# pass for nothing: eager execution has to reproduce itself, and the recording has to have run.

# %%
batches = [(torch.randn(4, 3, 8, 8, device=device), torch.rand(4, device=device)) for _ in range(2)]
verdict = verify(step, batches, regions=[region], state={"net": net, "optimizer": optimizer})
print(verdict)
assert verdict

# %% [markdown]
# ## What the guards do
#
# Another shape runs natively, once. A replaced weight ends the recording, with a warning; training goes on.

# %%
step(torch.randn(3, 3, 8, 8, device=device), torch.rand(3, device=device))
net[4].weight = nn.Parameter(net[4].weight.detach().clone())
step(torch.randn(4, 3, 8, 8, device=device), torch.rand(4, device=device))
assert region.counts[Reason.REPLAYED] > 0
print(ReplayReport.of([region]).table())
