"""The operations in chunks that stay in a cache, with looks at what may be left out; `chunks.py` knows how large."""

from nfdist.attention.ops.cpu.attention import attend as attend
from nfdist.attention.ops.cpu.edges import edge_log_likelihood as edge_log_likelihood
from nfdist.attention.ops.cpu.epilogue import add_norm as add_norm
from nfdist.attention.ops.cpu.features import key_logs as key_logs
from nfdist.attention.ops.cpu.features import project as project
from nfdist.attention.ops.cpu.noise import gumbel as gumbel
from nfdist.attention.ops.cpu.noise import keep_mask as keep_mask
from nfdist.attention.ops.cpu.summaries import summarize as summarize
