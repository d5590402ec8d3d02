"""Models: from a checkpoint folder to weights and a launch plan.

1. `vosti.impl.models.config`, over `fields` and `rope_config`: config.json, in the spellings of transformers 4 and 5,
   as one description of a decoder.
2. `vosti.impl.models.rope`: inverse frequencies and the tables of rotary position embedding.
3. `vosti.impl.models.safetensors`: a strict reader of safetensors files, single or sharded.
4. `vosti.impl.models.plan`: the forward as data.
5. `vosti.impl.models.layers`, with `llama3` and `gemma3` on top: plans of the two families.
6. `vosti.impl.models.weights`: each parameter of a plan, loaded exactly once.
7. `vosti.impl.models.model`: `Model.load`, all of it together.
"""
