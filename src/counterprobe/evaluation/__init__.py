"""Measures of finished runs.

Those that know the law are passive and submit nothing. Those that do not (``chain_rule``,
``likelihood``) ask the oracle, and are charged for it in a ledger of their own.
"""

from counterprobe.evaluation.advice import Advice as Advice
from counterprobe.evaluation.advice import advise as advise
from counterprobe.evaluation.batch_kl import BatchKL as BatchKL
from counterprobe.evaluation.batch_kl import BatchKLMeter as BatchKLMeter
from counterprobe.evaluation.batch_kl import batch_kl as batch_kl
from counterprobe.evaluation.batch_kl import batch_kl_of_batches as batch_kl_of_batches
from counterprobe.evaluation.batch_kl import reference_kl as reference_kl
from counterprobe.evaluation.chain_rule import plan_kl as plan_kl
from counterprobe.evaluation.chain_rule import run_kl as run_kl
from counterprobe.evaluation.chain_rule_kl import ChainRuleKL as ChainRuleKL
from counterprobe.evaluation.comparison import Comparison as Comparison
from counterprobe.evaluation.comparison import compare_sampler as compare_sampler
from counterprobe.evaluation.dependence import DependenceProfile as DependenceProfile
from counterprobe.evaluation.dependence import dependence_profile as dependence_profile
from counterprobe.evaluation.dependence import estimate_dependence as estimate_dependence
from counterprobe.evaluation.likelihood import LogLikelihoods as LogLikelihoods
from counterprobe.evaluation.likelihood import OrderDisagreement as OrderDisagreement
from counterprobe.evaluation.likelihood import log_likelihoods as log_likelihoods
from counterprobe.evaluation.likelihood import pseudo_log_likelihoods as pseudo_log_likelihoods
from counterprobe.evaluation.output_law import OutputLaw as OutputLaw
from counterprobe.evaluation.output_law import draw_tree_law as draw_tree_law
from counterprobe.evaluation.output_law import exact_output_law as exact_output_law
from counterprobe.evaluation.output_law import seed_averaged_risk as seed_averaged_risk
from counterprobe.evaluation.prices import PriceTable as PriceTable
from counterprobe.evaluation.prices import price_plans as price_plans
from counterprobe.evaluation.quality import Quality as Quality
from counterprobe.evaluation.quality import assess as assess
from counterprobe.evaluation.quality import (
    quality_under_parallelism as quality_under_parallelism,
)
from counterprobe.evaluation.trial import Trial as Trial
from counterprobe.evaluation.trial import run_trial as run_trial
from counterprobe.evaluation.two_sample import Diversity as Diversity
from counterprobe.evaluation.two_sample import FrequencyDifference as FrequencyDifference
from counterprobe.evaluation.two_sample import TwoSampleTest as TwoSampleTest
from counterprobe.evaluation.two_sample import diversity as diversity
from counterprobe.evaluation.two_sample import frequency_difference as frequency_difference
from counterprobe.evaluation.two_sample import two_sample_test as two_sample_test
from counterprobe.targets.information import Dependence as Dependence
from counterprobe.targets.information import dependence as dependence
from counterprobe.targets.information import information_curve as information_curve
