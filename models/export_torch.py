# export_torch.py - a PyTorch model as the training graph that zerox reads: training mode, loss inside, nothing folded.
# SPDX-License-Identifier: Apache-2.0
#   from export_torch import WithLoss, export; export(WithLoss(net), (x, labels), "model.onnx")    your own model
#   python export_torch.py gpt2 model.onnx --sequence 64                                            a Hugging Face causal model
import argparse
import torch

class Wrapper(torch.nn.Module):  # weights are called m.<their name>: load_state_dict(..., strict=False) into the same wrapper
    def __init__(self, model):
        super().__init__()
        self.m = model

class WithLoss(Wrapper):
    """Logits [..., classes] and labels: adds the cross-entropy."""
    def forward(self, x, labels):
        return torch.nn.functional.cross_entropy(self.m(x).flatten(0, -2), labels.flatten())

class HuggingFace(Wrapper):
    """A Hugging Face model that shifts its labels and computes its loss itself."""
    def forward(self, input_ids, labels):
        return self.m(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), labels=labels, use_cache=False).loss

def export(model, inputs, path, names=("x", "labels")):
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
    if frozen:  # no file can say so
        print("frozen here but trained by zerox, unless its config lists them under zerox.buffers:", frozen)
    # optimize=False matters: the default merges equal weights, folds transposes and unties embeddings.
    # clone: one tensor given as two inputs would be exported as one of them.
    torch.onnx.export(model.train(), tuple(x.clone() for x in inputs), dynamo=True, optimize=False, opset_version=20,
                      input_names=list(names), output_names=["loss"], verbose=False).save(path)
    print("wrote %s; next: zerox check %s" % (path, path))

if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("name"), p.add_argument("path"), p.add_argument("--batch", type=int, default=1)
    p.add_argument("--sequence", type=int, default=128)
    a = p.parse_args()
    from transformers import AutoModelForCausalLM
    ids = torch.zeros(a.batch, a.sequence, dtype=torch.int64)
    export(HuggingFace(AutoModelForCausalLM.from_pretrained(a.name)), (ids, ids), a.path, ("input_ids", "labels"))
