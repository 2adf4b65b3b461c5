# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # lucid-optim: MuSGD for a network of yours
#
# `lucid-optim` needs torch and nothing else of a detector. Here it trains a small convolutional network to tell drawn
# shapes apart, beside plain SGD.

# %%
import os

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn import functional as F

from lucid_optim import ModelEMA, MuSGD, explain, newton_schulz, param_groups, warmup_linear_decay

# %matplotlib inline

FAST = bool(os.environ.get("LUCID_NOTEBOOK_FAST"))
STEPS = 30 if FAST else 400

# %% [markdown]
# ## What the rule does to a matrix
#
# The direction of an update is the momentum with its singular values brought near one: every direction in weight space
# gets a say, not only the few that dominate the gradient.

# %%
torch.manual_seed(0)
gradient = torch.randn(16, 4) @ torch.diag(torch.tensor([100.0, 10.0, 1.0, 0.1])) @ torch.randn(4, 64)
print("before", torch.linalg.svdvals(gradient)[:4])
print("after ", torch.linalg.svdvals(newton_schulz(gradient))[:4])

# %% [markdown]
# ## A task: which way do the stripes run?


# %%
def stripes(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy 16 x 16 gratings of four directions, (count, 1, 16, 16), and the direction of each."""
    labels = torch.randint(0, 4, (count,), generator=generator)
    angle = labels[:, None, None] * torch.pi / 4
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    phase = torch.rand(count, 1, 1, generator=generator) * 6.3
    waves = torch.sin(0.9 * (x * torch.cos(angle) + y * torch.sin(angle)) + phase)
    return (waves + 1.5 * torch.randn(count, 16, 16, generator=generator))[:, None], labels


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )


# %% [markdown]
# ## Which parameter gets which rule
#
# Rank decides by default. `explain` prints the groups; patterns give parts of a model their own settings.

# %%
model = network()
groups = param_groups(model, {"8.*": {"lr": 0.005}})
print(explain(MuSGD(groups, lr=0.02).param_groups))

# %% [markdown]
# ## Train, with a schedule and averaged weights


# %%
def train(optimizer_of, lr: float):
    model, generator = network(), torch.Generator().manual_seed(2)
    optimizer = optimizer_of(model.parameters(), lr=lr, momentum=0.95)
    average, losses = ModelEMA(model, tau=50), []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = lr * warmup_linear_decay(step, STEPS, STEPS // 10, 0.05)
        images, labels = stripes(32, generator)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        losses.append(loss.item())
    model.load_state_dict(average.weights(model))
    images, labels = stripes(512, torch.Generator().manual_seed(3))
    with torch.no_grad():
        accuracy = (model.eval()(images).argmax(1) == labels).float().mean().item()
    return losses, accuracy


curves = {"MuSGD": train(MuSGD, 0.02), "SGD": train(torch.optim.SGD, 0.02)}

# %%
figure = Figure(figsize=(7, 3.5), layout="constrained")
axes = figure.subplots()
for name, (losses, accuracy) in curves.items():
    axes.plot(losses, label=f"{name}: {accuracy:.1%} of new images right")
axes.set(xlabel="step", ylabel="loss", yscale="log")
axes.legend(frameon=False)
figure

# %% [markdown]
# One run with one learning rate says little about two optimizers; [the convergence
# page](../../packages/lucid-optim/docs/convergence.md) compares them over rates and seeds.
