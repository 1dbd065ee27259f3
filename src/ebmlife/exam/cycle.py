"""The life cycle of a model's samples: long Langevin chains, evaluated at log-spaced steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebmlife.data import Dataset
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import Diverged
from ebmlife.exam.config import DEFAULT_SAMPLER, ExamConfig
from ebmlife.exam.features import PLAIN, Features
from ebmlife.exam.metrics import import_arviz
from ebmlife.exam.observers import Evaluations, Trace
from ebmlife.exam.reference import Reference, compute_reference, random_subset
from ebmlife.exam.subject import HasGradient, Subject
from ebmlife.exam.verdict import Verdict, judge
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.kernels import make_kernel
from ebmlife.sampling.long_run import Progress, Snapshots, log_spaced, long_walk
from ebmlife.sampling.rng import generator

REFERENCE = 2048  # data that samples are compared with, at least: as many as FID has features


@dataclass(frozen=True)
class LifeCycle:
    """The result of an exam.

    Attributes:
        steps: Langevin steps at which all chains were evaluated.
        metrics: A value of each metric at each of the steps; None where there is none.
        verdict: "shortrun", "midrun" or "longrun".
        stable_until: Last step at which samples are still like the data; 0 if they never are.
        reasons: What the verdict is based on, in sentences.
        ranges: Smallest and largest value of each metric over random sets of data, each as large as the set of chains.
        settings: Settings of the exam.
        complete: Whether the chains reached the last step; False after an interruption.
        strip: States (len(steps), chains shown, ...) of the first chains at each of the steps.
        states: States (chains, ...) of all chains at the last step; empty if they diverged.
    """

    steps: list[int]
    metrics: dict[str, list[float | None]]
    verdict: Verdict
    stable_until: int
    reasons: list[str]
    ranges: dict[str, tuple[float, float]]
    settings: dict[str, Any]
    complete: bool
    strip: Tensor = field(repr=False)
    states: Tensor = field(repr=False)

    @property
    def figures(self) -> dict[str, list[float | None]]:
        """The earlier name of `metrics`."""
        return self.metrics


@dataclass(frozen=True)
class Exam:
    """An exam that can be run: the subject and the settings. It is validated on creation."""

    subject: Subject
    config: ExamConfig
    folder: Path | None = None  # of the results and checkpoints
    identity: dict[str, Any] = field(default_factory=dict)  # a saved exam is resumed only if it is the same
    evaluated_on: dict[str, Any] | None = None  # where the data come from
    unseen: Callable[[], Dataset | None] = lambda: None  # data that the model was not trained on

    def __post_init__(self) -> None:
        make_kernel(self.config.sampler, self.subject.energy, step_size=self.config.step_size or 1.0)  # it must fit
        self.subject.validate(self.config.batch)

    @property
    def step_size(self) -> float:
        assert self.config.step_size is not None
        return self.config.step_size

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The content of exam.json that must agree when an exam is resumed."""
        saved = self.config.saved()
        later = {name: saved.pop(name) for name in ("evaluation_temperature", "features", "classifier", "conditional")}
        saved |= self.identity
        if self.evaluated_on is not None:  # a folder of data may have moved: its content identifies it
            saved |= {name: self.evaluated_on[name] for name in ("split", "fingerprint")}
        saved["slope"] = fingerprint.of_gradient(self.subject.sampled_energy, self.subject.x0[: self.config.batch])
        return saved | later  # in the order of earlier files

    @property
    def about(self) -> dict[str, Any]:
        """What is saved beside the settings: where the data come from."""
        return {} if self.evaluated_on is None else {"evaluated_on": self.evaluated_on}

    def run(
        self,
        *,
        progress: Callable[[Progress], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> LifeCycle:
        """Runs the chains, or resumes them from the folder, and returns what was measured and the verdict.

        Args:
            progress: Called with the step that was reached, at least every 100 steps.
            stopping: Asked at least every 100 steps whether to save and stop.
            ranks: Processes that share the batches of chains.
        """
        import_arviz()  # fail before hours of work
        subject, config = self.subject, self.config
        data, reference, axes = self._references(ranks)
        energy = subject.sampled_energy if subject.has_energy else None
        marks, batch = log_spaced(config.steps), config.batch
        evaluations = Evaluations(marks, reference, subject.features, energy, subject.classifier, batch, ranks)
        trace = Trace(config.steps, axes, subject.trace, energy, batch, ranks)
        strip = Snapshots(marks, chains=config.shown)
        diverged, sampler = None, dict[str, Any]()
        try:
            x, done = long_walk(
                subject.sampled_energy,
                subject.x0,
                steps=config.steps,
                step_size=self.step_size,
                seed=config.seed,
                clip=subject.clip,
                sampler=config.sampler,
                batch=batch,
                watchers=[evaluations, trace, strip],
                about=self._measured_with(data),
                folder=self.folder,
                progress=progress,
                stopping=stopping,
                report=sampler.update,
                ranks=ranks,
            )
        except Diverged as error:
            if not evaluations.rows:
                raise  # not even the start could be evaluated
            x, done, diverged = torch.empty(0), config.steps, str(error)
        metrics = evaluations.columns() | trace.columns(evaluations.steps)
        judgment = judge(evaluations.steps, metrics, reference, diverged=diverged)
        return LifeCycle(
            evaluations.steps,
            metrics,
            judgment.verdict,
            judgment.stable_until,
            judgment.reasons,
            reference.ranges,
            self._summary(len(data)) | self._measured_by(sampler) | self.about,
            done == config.steps,
            torch.stack(strip.states),
            x.cpu(),
        )

    def _references(self, ranks: Ranks) -> tuple[Tensor, Reference, Reference]:
        """Returns the data, their reference for the metrics, and the one whose axes R-hat is computed along."""
        subject, chains = self.subject, len(self.subject.x0)
        data = subject.x0 if subject.data is None else subject.data
        states = data if isinstance(data, Tensor) else random_subset(data, max(REFERENCE, chains))
        rng = generator(self.config.seed, "exam")
        compute = partial(compute_reference, states.to("cpu", subject.x0.dtype), rng=rng, ranks=ranks)
        reference = compute(chains=chains, features=subject.features, noise=subject.data_noise)
        if subject.trace is subject.features:
            return states, reference, reference
        return states, reference, compute(chains=2, features=subject.trace, noise=0.0)

    def _measured_with(self, data: Tensor) -> dict[str, Any]:
        """Returns what the metrics depend on, which must agree when checkpoints are resumed."""
        subject = self.subject
        return {
            "data": fingerprint.of_tensors(data),
            "data_noise": subject.data_noise,
            "shown": self.config.shown,
            "features": [subject.features.name, subject.trace.name],
            "classes": subject.classifier is not None,
        }

    def _measured_by(self, report: dict[str, Any]) -> dict[str, Any]:
        """Returns the sampler and what it measured; nothing for Langevin steps, which have only the step size."""
        name = self.config.sampler
        return {} if name == DEFAULT_SAMPLER else {"sampler": {"name": name, **report}}

    def _summary(self, data: int) -> dict[str, Any]:
        """Returns the settings that life-cycle.json holds."""
        subject, config, chains = self.subject, self.config, len(self.subject.x0)
        return {
            "steps": config.steps,
            "step_size": self.step_size,
            "chains": chains,
            "seed": config.seed,
            "clip": subject.clip,
            "distance": f"{subject.features.name}_{chains}",
            "data_noise": subject.data_noise,
            "data": data,
        }


def life_cycle(
    energy: Energy | HasGradient,
    x0: Tensor,
    *,
    steps: int = 100_000,
    step_size: float = 1e-2,
    data: Dataset | Tensor | None = None,
    data_noise: float = 0.0,
    features: Features = PLAIN,
    traced: Features | None = None,
    classifier: Callable[[Tensor], Tensor] | None = None,
    clip: float | None = None,
    sampler: str = DEFAULT_SAMPLER,
    seed: int = 0,
    batch: int = 256,
    shown: int = 8,
    folder: Path | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
    ranks: Ranks = SINGLE_PROCESS,
) -> LifeCycle:
    """Runs long Langevin chains and reports how long their states stay like the data.

    Args:
        energy: A callable from states (B, ...) to energies (B,), or an object that has only a `gradient`.
        x0: Start states (B, ...), one for each chain.
        steps: Number of Langevin steps.
        step_size: Langevin step size.
        data: Data that samples are compared with. None compares with x0, which is right for chains that start at data
            or at good samples.
        data_noise: Standard deviation of the noise on the data that the model learned.
        features: Features of the distance.
        traced: Features of R-hat, if `features` are too slow to be computed 400 times.
        classifier: A callable from states to logits; the fraction of chains that keep the class of their start is then
            a metric.
        clip: Largest length of the gradient part of a step.
        sampler: Name of the sampling kernel: "langevin", "mala", "underdamped" or "replica-exchange". All but the
            first have a Metropolis test and need an energy; `LifeCycle.settings["sampler"]` has their acceptance rate.
        seed: Seed of all random streams.
        batch: Number of chains that are run together.
        shown: Number of chains in `LifeCycle.strip`.
        folder: Folder for checkpoints, written every minute; the same call resumes from them.
        progress: Called with the step that was reached, at least every 100 steps.
        stopping: Asked at least every 100 steps whether to save and stop.
        ranks: Processes that share the batches; each of them returns what a single process would.

    Returns:
        The metrics at log-spaced steps, the verdict and its reasons.

    Raises:
        BadInput: If the energy, the states or the data cannot be examined.
        Diverged: If the start itself cannot be evaluated. Chains that diverge later are part of the verdict.
    """
    config = ExamConfig(steps=steps, step_size=step_size, seed=seed, batch=batch, shown=shown, sampler=sampler)
    subject = Subject(energy, x0, data, data_noise, features, traced or features, classifier, clip)
    return Exam(subject, config, folder).run(progress=progress, stopping=stopping, ranks=ranks)
