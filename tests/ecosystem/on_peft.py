"""Hugging Face PEFT: small adapters beside the weights of a large model."""

import copy

import torch
from accelerate import dispatch_model
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from tests.ecosystem.support import batch, close, folder, main, mlp, train

NEEDS = ("peft", "transformers", "accelerate")
SHORT = ("only_adapters_learn",)
ENVIRONMENT = {"HF_HUB_OFFLINE": "1"}


def with_lora(model: nn.Module, **options) -> PeftModel:
    """Add LoRA to the linear layers of `mlp`, always with the same weights."""
    torch.manual_seed(2)
    config = LoraConfig(
        r=2, lora_alpha=4, target_modules=["0", "2"], lora_dropout=0.0, **options
    )
    return get_peft_model(model, config)


def check_only_adapters_learn():
    """LoRA on a GPU trains only its small matrices, as on the CPU, and merges them."""
    X, Y = batch()
    for options in {}, {"use_dora": True}:
        expected = with_lora(mlp(), **options)
        model = with_lora(mlp().to("cuda"), **options)
        train(expected, X, Y, steps=3)
        train(model, X.cuda(), Y.cuda(), steps=3)
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        assert trained and all("lora_" in name for name in trained)
        for name, parameter in expected.named_parameters():
            close(model.get_parameter(name), parameter, "cuda:0")
        output = model(X.cuda())
        merged = model.merge_and_unload()
        assert type(merged) is nn.Sequential
        close(merged(X.cuda()), output.cpu(), "cuda:0")
        close(merged[0].weight, expected.merge_and_unload()[0].weight, "cuda:0")


def check_adapters_are_saved_and_loaded():
    """An adapter saved from one GPU is loaded onto the other, beside a second one."""
    X, Y = batch()
    model = with_lora(mlp().to("cuda:0"))
    train(model, X.to("cuda:0"), Y.to("cuda:0"), steps=3)
    expected = model(X.to("cuda:0")).cpu()
    with folder() as path:
        model.save_pretrained(path)
        again = PeftModel.from_pretrained(mlp().to("cuda:1"), path)
    assert all(p.device == torch.device("cuda:1") for p in again.parameters())
    close(again(X.to("cuda:1")), expected, "cuda:1")
    again.add_adapter("other", copy.copy(again.peft_config["default"]))
    again.set_adapter("other")  # it starts as nothing
    close(again(X.to("cuda:1")), mlp()(X), "cuda:1")
    again.set_adapter("default")
    with again.disable_adapter():
        close(again(X.to("cuda:1")), mlp()(X), "cuda:1")
    close(again(X.to("cuda:1")), expected, "cuda:1")


def check_adapters_follow_the_layers_of_a_spread_model():
    """In a model spread over GPUs, each adapter is where its layer is, and learns."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    base = LlamaForCausalLM(config)
    expected = copy.deepcopy(base)
    devices = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": 1}
    devices |= {"model.norm": 1, "model.rotary_emb": 1, "lm_head": 1}
    base = dispatch_model(base, device_map=devices)
    lora = LoraConfig(r=4, task_type=TaskType.CAUSAL_LM, target_modules=["q_proj"])
    model, reference = get_peft_model(base, lora), get_peft_model(expected, lora)
    for i, layer in enumerate(model.base_model.model.model.layers):
        adapter = layer.self_attn.q_proj.lora_A["default"]
        assert adapter.weight.device == torch.device("cuda", i)
    state = reference.state_dict()
    model.load_state_dict(state)
    ids = torch.arange(16).reshape(2, 8) + 5
    loss = reference(input_ids=ids, labels=ids).loss
    mine = model(input_ids=ids.cuda(), labels=ids.cuda()).loss
    close(mine, loss)
    loss.backward()
    mine.backward()
    for name, parameter in reference.named_parameters():
        if parameter.requires_grad:
            close(model.get_parameter(name).grad, parameter.grad, atol=1e-5)


if __name__ == "__main__":
    main(globals())
