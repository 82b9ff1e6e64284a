"""Draws how the objective rises as each coefficient is moved and the others follow."""

import pathlib

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from sparsity.law.picture import STYLE, save
from sparsity.law.profile import Profile


def draw_profiles(found: list[Profile], flat: float, title: str, stem: pathlib.Path) -> None:
    """Draws one small panel a coefficient and writes PNG and SVG."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 4, figsize=(11.5, 5.0), sharey=True, layout="constrained")
        for axis, profile in zip(axes.flat, found, strict=False):
            axis.plot(profile.values, 100 * profile.excess, color="#3b4cc0", linewidth=1.8)
            axis.axvline(profile.best, color="#222222", linewidth=0.8, linestyle=":")
            axis.axhline(100 * flat, color="#bbbbbb", linewidth=0.8)
            axis.set_title(profile.name)
            if min(profile.values) > 0 and max(profile.values) > 30 * min(profile.values):
                axis.set_xscale("log")
            else:
                axis.ticklabel_format(axis="x", style="sci", scilimits=(-2, 4))
                axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.grid(color="#ececec", linewidth=0.7)
        for axis in axes[:, 0]:
            axis.set_ylabel("objective above minimum, %")
        for axis in axes.flat[len(found) :]:
            axis.set_axis_off()
        figure.suptitle(f"Profiles, {title}", x=0.008, ha="left", fontsize=13, fontweight="bold")
        save(figure, stem)
