"""Hugging Face Transformers: several architectures, with random weights."""

import copy

import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
    pipeline,
)

from tests.ecosystem.support import close, folder, main, same_gradients, torchrun

NEEDS = ("transformers", "accelerate", "tokenizers")
SHORT = (
    "the_trainer_uses_both_gpus",
    "gpt2_generates",
    "a_model_is_loaded_over_both_gpus",
)
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

WORDS = ["<pad>", "<eos>", "<unk>", "a", "bad", "film", "good", "is", "it", "the"]
WORDS += ["this", "very", "was"]


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def llama_config(**settings) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
        tie_word_embeddings=False,
        **settings,
    )


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(llama_config()).eval()


def bert() -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config).eval()


def tokens(rows: int = 2, length: int = 8) -> torch.Tensor:
    """Token ids other than those with a meaning, always the same."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, 64, (rows, length), generator=generator)


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that knows a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: i for i, word in enumerate(WORDS)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


# ------------------------------------------------------------------ training


def trained_on_the_cpu(rows: torch.Tensor, steps: int) -> GPT2LMHeadModel:
    """Take steps of AdamW on all rows, without the Trainer."""
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
    return model


def by_the_trainer(rows: torch.Tensor, steps: int, path: str) -> Trainer:
    """Let the Trainer take the same steps; return it."""
    arguments = TrainingArguments(
        output_dir=path,
        max_steps=steps,
        per_device_train_batch_size=len(rows) // 2,  # on each of two GPUs
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        optim="adamw_torch",
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model=gpt2(), args=arguments, train_dataset=data)
    trainer.train()
    return trainer


def same_as_on_the_cpu(trainer: Trainer, rows: torch.Tensor, steps: int) -> None:
    model = trainer.accelerator.unwrap_model(trainer.model)
    gpu = trainer.args.device
    assert all(p.device == gpu for p in model.parameters())
    expected = trained_on_the_cpu(rows, steps)
    with torch.no_grad():
        before = gpt2()(input_ids=rows, labels=rows).loss
        loss = expected(input_ids=rows, labels=rows).loss
        mine = model.eval()(input_ids=rows.to(gpu), labels=rows.to(gpu)).loss
    assert loss < before - 0.5
    close(mine, loss, gpu, rtol=1e-2, atol=1e-2)


def check_the_trainer_uses_both_gpus():
    """In one process the Trainer spreads batches over both GPUs, and learns as ever."""
    rows = tokens(8)
    with folder() as path:
        trainer = by_the_trainer(rows, 5, str(path))
    assert trainer.args.n_gpu == 2
    assert trainer.args.device == torch.device("cuda:0")
    assert isinstance(trainer.model_wrapped, torch.nn.DataParallel)
    same_as_on_the_cpu(trainer, rows, 5)


def check_the_trainer_on_two_ranks():
    """Under torchrun the Trainer takes the steps of one process, one GPU for a rank."""
    torchrun(rank_trains)


def rank_trains():
    rows = tokens(8)
    with folder() as path:
        trainer = by_the_trainer(rows, 5, str(path))
    assert trainer.args.world_size == 2
    assert trainer.args.device.index == trainer.args.local_process_index
    same_as_on_the_cpu(trainer, rows, 5)


def check_the_trainer_saves_and_resumes():
    """In bf16 with checkpointed activations, the Trainer resumes where it stopped."""
    rows = tokens(8)
    with folder() as path:
        losses = []
        for steps, resume in ((4, None), (6, True)):
            arguments = TrainingArguments(
                output_dir=str(path),
                max_steps=steps,
                per_device_train_batch_size=4,
                learning_rate=1e-2,
                bf16=True,
                gradient_checkpointing=True,
                logging_steps=1,
                save_steps=2,
                eval_strategy="steps",
                eval_steps=2,
                report_to=[],
                disable_tqdm=True,
            )
            data = [{"input_ids": row, "labels": row} for row in rows]
            trainer = Trainer(
                model=gpt2(), args=arguments, train_dataset=data, eval_dataset=data
            )
            trainer.train(resume_from_checkpoint=resume)
            history = trainer.state.log_history
            losses.append([entry["loss"] for entry in history if "loss" in entry])
            assert any("eval_loss" in entry for entry in history)
    assert trainer.state.global_step == 6
    assert len(losses[1]) == 6 and losses[1][:4] == losses[0], losses
    assert losses[1][5] < losses[1][0] - 0.2, losses


# ------------------------------------------------------------------ architectures


def check_gpt2_generates():
    """GPT-2 on a GPU writes what it writes on the CPU: greedily, and with beams."""
    model, ids = gpt2(), tokens()
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    for settings in {}, {"num_beams": 3}, {"repetition_penalty": 1.3}:
        options = {"max_new_tokens": 10, "do_sample": False, **settings}
        expected = model.to("cpu").generate(ids, attention_mask=mask, **options)
        mine = model.to("cuda").generate(
            ids.cuda(), attention_mask=mask.cuda(), **options
        )
        close(mine, expected, "cuda:0")


def check_sampled_text_is_repeatable():
    """With the same seed GPT-2 samples the same text, and another one without."""
    model, ids = gpt2().to("cuda"), tokens().cuda()
    options = {"max_new_tokens": 16, "do_sample": True, "top_k": 50}
    options |= {"attention_mask": torch.ones_like(ids), "eos_token_id": None}
    texts = []
    for seed in 0, 0, 1:
        torch.manual_seed(seed)
        texts.append(model.generate(ids, **options))
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])
    assert texts[0].shape == (2, 24) and texts[0].device == torch.device("cuda:0")


def check_llama_with_a_static_cache():
    """Llama writes the same with a cache of fixed size as with one that grows."""
    model, ids = llama(), tokens()
    options = {"max_new_tokens": 8, "do_sample": False}
    options |= {"attention_mask": torch.ones_like(ids)}
    expected = model.generate(ids, **options)
    model = model.to("cuda:1")
    options["attention_mask"] = options["attention_mask"].to("cuda:1")
    for cache in "dynamic", "static":
        mine = model.generate(ids.to("cuda:1"), cache_implementation=cache, **options)
        close(mine, expected, "cuda:1")


def check_llama_in_bfloat16():
    """Llama in bfloat16 predicts what it does in float32, to rounding, and learns."""
    expected, ids = llama(), tokens()
    model = copy.deepcopy(expected).to("cuda", torch.bfloat16)
    output = model(ids.cuda(), labels=ids.cuda())
    assert output.logits.dtype == torch.bfloat16
    reference = expected(ids, labels=ids)
    close(output.logits.float(), reference.logits, "cuda:0", rtol=5e-2, atol=2e-2)
    output.loss.backward()
    reference.loss.backward()
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert a.grad.dtype == torch.bfloat16 and a.grad.device.type == "cuda"
        error = (a.grad.cpu().float() - b.grad).norm() / b.grad.norm()
        assert error < 0.05, error


def check_implementations_of_attention_agree():
    """Llama's attention written out, and PyTorch's, give the same outputs on a GPU."""
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    expected = llama()(ids, attention_mask=mask).logits
    state = llama().state_dict()
    for name in "eager", "sdpa":
        model = AutoModelForCausalLM.from_config(
            llama_config(), attn_implementation=name
        )
        model.load_state_dict(state)
        model = model.eval().to("cuda")
        assert model.config._attn_implementation == name
        output = model(ids.cuda(), attention_mask=mask.cuda()).logits
        close(output[1, 2:], expected[1, 2:], "cuda:0", rtol=1e-3, atol=1e-4)
        close(output[0], expected[0], "cuda:0", rtol=1e-3, atol=1e-4)


def check_bert_classifies():
    """BERT has the same outputs and gradients on a GPU, where rows are padded."""
    expected, ids = bert(), tokens(4, 10)
    mask = (torch.arange(10) < torch.tensor([[10], [7], [4], [1]])).long()
    labels = torch.tensor([0, 2, 1, 1])
    reference = expected(ids, attention_mask=mask, labels=labels)
    reference.loss.backward()
    model = bert().to("cuda:1")
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    output = model(**{name: x.to("cuda:1") for name, x in inputs.items()})
    close(output.logits, reference.logits, "cuda:1")
    close(output.loss, reference.loss, "cuda:1")
    output.loss.backward()
    same_gradients(model, expected, "cuda:1", rtol=1e-3, atol=1e-5)


def check_t5_translates():
    """T5 has the same loss, gradients and text on a GPU as on the CPU."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    expected = T5ForConditionalGeneration(config).eval()
    model = copy.deepcopy(expected).to("cuda")
    ids, labels = tokens(2, 9), tokens(2, 5)
    loss = expected(input_ids=ids, labels=labels).loss
    mine = model(input_ids=ids.cuda(), labels=labels.cuda()).loss
    close(mine, loss, "cuda:0")
    loss.backward()
    mine.backward()
    same_gradients(model, expected, "cuda:0", rtol=1e-3, atol=1e-4)
    options = {"max_new_tokens": 8, "num_beams": 2, "do_sample": False}
    text = model.generate(ids.cuda(), **options)
    close(text, expected.generate(ids, **options), "cuda:0")


def check_vit_sees():
    """ViT has the same outputs and gradients for images on a GPU as on the CPU."""
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=16,
        patch_size=4,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    expected = ViTForImageClassification(config).eval()
    model = copy.deepcopy(expected).to("cuda")
    images, labels = torch.randn(3, 3, 16, 16), torch.tensor([0, 4, 2])
    reference = expected(pixel_values=images, labels=labels)
    output = model(pixel_values=images.cuda(), labels=labels.cuda())
    close(output.logits, reference.logits, "cuda:0", rtol=1e-3, atol=1e-3)
    reference.loss.backward()
    output.loss.backward()
    same_gradients(model, expected, "cuda:0", rtol=1e-2, atol=1e-3)


def check_whisper_listens():
    """Whisper writes the same tokens for a spectrogram on a GPU as on the CPU."""
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=64,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50,
        max_target_positions=32,
        decoder_start_token_id=2,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=0,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    expected = WhisperForConditionalGeneration(config).eval()
    model = copy.deepcopy(expected).to("cuda")
    sound, labels = torch.randn(2, 8, 100), tokens(2, 6)
    reference = expected(input_features=sound, labels=labels)
    output = model(input_features=sound.cuda(), labels=labels.cuda())
    close(output.loss, reference.loss, "cuda:0", rtol=1e-3)
    options = {"max_new_tokens": 8, "do_sample": False}
    text = model.generate(sound.cuda(), **options)
    close(text, expected.generate(sound, **options), "cuda:0")


# ------------------------------------------------------------------ pipelines and maps


def check_pipelines():
    """Pipelines with device=1 classify and continue text on the second GPU."""
    words = tokenizer()
    texts = ["this film was very good", "it is the bad film"]
    expected = pipeline("text-classification", bert(), tokenizer=words, device=-1)
    classify = pipeline("text-classification", bert(), tokenizer=words, device=1)
    assert classify.device == torch.device("cuda:1")
    assert classify.model.device == torch.device("cuda:1")
    pairs = zip(classify(texts), expected(texts), strict=True)
    for mine, other in pairs:
        assert mine["label"] == other["label"]
        assert abs(mine["score"] - other["score"]) < 1e-4
    write = pipeline("text-generation", gpt2(), tokenizer=words, device="cuda:1")
    options = {"max_new_tokens": 5, "do_sample": False, "return_full_text": True}
    expected = pipeline("text-generation", gpt2(), tokenizer=words, device="cpu")
    assert write(texts[0], **options) == expected(texts[0], **options)


def check_a_model_is_loaded_over_both_gpus():
    """With device_map, layers are loaded onto both GPUs, and the model works as one."""
    expected, ids = llama(), tokens()
    mask = torch.ones_like(ids)
    options = {"max_new_tokens": 6, "do_sample": False}
    text = expected.generate(ids, attention_mask=mask, **options)
    with folder() as path:
        expected.save_pretrained(path)
        for device_map in "auto", "balanced":
            model = AutoModelForCausalLM.from_pretrained(path, device_map=device_map)
            places = set(model.hf_device_map.values())
            assert places == {0, 1}, model.hf_device_map
            devices = {str(p.device) for p in model.parameters()}
            assert devices == {"cuda:0", "cuda:1"}, devices
            with torch.no_grad():
                output = model(ids.cuda(), attention_mask=mask.cuda()).logits
            close(output, expected(ids, attention_mask=mask).logits, "cuda:0")
            mine = model.generate(ids.cuda(), attention_mask=mask.cuda(), **options)
            close(mine, text, "cuda:0")
        model = AutoModelForCausalLM.from_pretrained(
            path, device_map="cuda:1", dtype=torch.bfloat16
        )
        assert model.lm_head.weight.device == torch.device("cuda:1")
        assert model.lm_head.weight.dtype == torch.bfloat16


if __name__ == "__main__":
    main(globals())
