"""My claim: early in training, examples with high losses only get in the way."""

import dataclasses

from experiments.bert import bert_baseline
from experiments.methods.api import Method
from experiments.registry import experiment, study
from experiments.study import Study


@dataclasses.dataclass(frozen=True, kw_only=True)
class EasyFirst(Method):
    """An example counts exp(−strength · (1 − progress) · loss)-fold; 0 is the baseline."""

    name: str = "easy_first"
    strength: float = 1.0

    def losses(self, model, experiment):
        import jax  # here, since --list is quick without

        def losses(params, batch, draw):
            sums = model.losses(params, batch, key=draw.key, per_example=True)
            mean = jax.lax.stop_gradient(sums["nll"][0] / sums["nll"][1])
            weight = jax.numpy.exp(-self.strength * (1 - draw.progress) * mean)
            return {name: ((weight * a).sum(), (weight * n).sum()) for name, (a, n) in sums.items()}

        return losses


@experiment
def bert_easy_first(scale):
    """BERT that is taught its easy examples first."""
    return dataclasses.replace(bert_baseline(scale), name="bert_easy_first", method=EasyFirst())


@study
def study_easy_first(scale):
    pair = (bert_baseline(scale), bert_easy_first(scale))
    runs = (dataclasses.replace(run, seed=seed) for seed in range(3) for run in pair)
    return Study(name="study_easy_first", runs=tuple(runs))
