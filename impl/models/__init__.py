"""Models: from a checkpoint folder, or a config alone, to weights and a launch plan.

1. `vosti.impl.models.config`, over `fields` and `rope_config`: a decoder's description, and how config.json is read.
2. `vosti.impl.models.rope`: inverse frequencies and the tables of rotary position embedding.
3. `vosti.impl.models.plan`: the forward as data.
4. `vosti.impl.models.layers`: plans of decoders. On top of it the families, `llama3`, `mistral`, `qwen3`, `gemma3` and
   `gemma4`, and `vosti.impl.models.families`, which finds a checkpoint's own.
5. `vosti.impl.models.tensors`, over `safetensors`, a strict reader of files, single or sharded; and
   `vosti.impl.models.dummy`: where parameters come from.
6. `vosti.impl.models.weights`: each parameter, as a backend keeps it.
7. `vosti.impl.models.model`: `Model.load`, all of it together.
"""
