"""PEFT's LoRA in a small LLaMA, trained by a plain loop; the weights of the adapter are saved."""

import json
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from tqdm import trange
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(5)
base = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=16,
    )
)  # fmt: skip
config = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
model = get_peft_model(base, config)
model.print_trainable_parameters()
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
steps = 0
for _ in trange(6, desc="LoRA"):
    rows = torch.randint(50, (4, 16))
    loss = model(input_ids=rows, labels=rows).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
    print(steps, loss.item())
model.save_pretrained("adapter")
torch.save(torch.get_rng_state(), "generator.pt")
Path("counts.json").write_text(json.dumps({"steps": steps, "micro_steps": steps, "skipped": 0}))
