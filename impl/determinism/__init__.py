"""The determinism suite: any engine, measured against Definition 2.1 (sections 2.2 and 6.1 of the paper).

An engine serves the same requests under schedules that differ, and every byte of its logits is compared. A pair counts
only if both schedules are shown to have differed as the axis wants; otherwise it is *invalid*, which is no pass.

| module | what it holds |
| --- | --- |
| `protocol` | how an engine is driven: requests in; logit rows, tokens and schedule out |
| `vosti_engine`, `transformers_engine`, `vllm_engine` | the engines that are driven |
| `prompts` | random prompts, and the rule that scales a suite to a short context |
| `cases` | a piece of a suite: what it costs, and the pairs that it yields |
| `paper`, `extended`, `extended_scheduling`, `extended_values` | the axes |
| `suites` | which axes a suite has |
| `bits`, `schedules` | what differs between two rows, and between two schedules |
| `results`, `runner` | the results' file, and the run that adds to it what is missing |
| `summary`, `report`, `plot` | tables and pages |
"""
