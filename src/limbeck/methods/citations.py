"""Where the methods come from: one citation a paper, for records and model cards."""

from __future__ import annotations

from dataclasses import replace

from limbeck.methods.composition import Citation


def cite(citation: Citation, place: str) -> Citation:
    """Point at a place in a paper.

    Args:
        citation: The paper.
        place: Section, equation or table.
    """
    return replace(citation, place=place)


def _paper(
    key: str, title: str, authors: str, year: int, url: str, venue: str, kind: str = "inproceedings"
) -> Citation:
    """Make a citation and its BibTeX entry from the same facts."""
    place = "journal" if kind == "article" else "booktitle"
    names = " and ".join(authors.split(", "))
    bibtex = (
        f"@{kind}{{{key},\n  title={{{title}}},\n  author={{{names}}},\n  {place}={{{venue}}},\n  year={{{year}}}\n}}"
    )
    return Citation(title, authors, year, url, "", bibtex)


MINILM = _paper(
    "wang2020minilm",
    "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
    "Wenhui Wang, Furu Wei, Li Dong, Hangbo Bao, Nan Yang, Ming Zhou",
    2020,
    "https://arxiv.org/abs/2002.10957",
    "Advances in Neural Information Processing Systems 33",
)
MINILMV2 = _paper(
    "wang2021minilmv2",
    "MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained Transformers",
    "Wenhui Wang, Hangbo Bao, Shaohan Huang, Li Dong, Furu Wei",
    2021,
    "https://arxiv.org/abs/2012.15828",
    "Findings of the Association for Computational Linguistics: ACL-IJCNLP 2021",
)
COMPARATIVE_STUDY = _paper(
    "udagawa2023comparative",
    "A Comparative Analysis of Task-Agnostic Distillation Methods for Compressing Transformer Language Models",
    "Takuma Udagawa, Aashka Trivedi, Michele Merler, Bishwaranjan Bhattacharjee",
    2023,
    "https://arxiv.org/abs/2310.08797",
    "Proceedings of the 2023 Conference on Empirical Methods in Natural Language Processing: Industry Track",
)
DISTILBERT = _paper(
    "sanh2019distilbert",
    "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
    "Victor Sanh, Lysandre Debut, Julien Chaumond, Thomas Wolf",
    2019,
    "https://arxiv.org/abs/1910.01108",
    "arXiv preprint arXiv:1910.01108",
    kind="article",
)
TINYBERT = _paper(
    "jiao2020tinybert",
    "TinyBERT: Distilling BERT for Natural Language Understanding",
    "Xiaoqi Jiao, Yichun Yin, Lifeng Shang, Xin Jiang, Xiao Chen, Linlin Li, Fang Wang, Qun Liu",
    2020,
    "https://arxiv.org/abs/1909.10351",
    "Findings of the Association for Computational Linguistics: EMNLP 2020",
)
ELM = _paper(
    "jiao2021elm",
    "Improving Task-Agnostic BERT Distillation with Layer Mapping Search",
    "Xiaoqi Jiao, Huating Chang, Yichun Yin, Lifeng Shang, Xin Jiang, Xiao Chen, Linlin Li, Fang Wang, Qun Liu",
    2021,
    "https://arxiv.org/abs/2012.06153",
    "Neurocomputing",
    kind="article",
)
MLKD_BERT = _paper(
    "zhang2024mlkdbert",
    "MLKD-BERT: Multi-level Knowledge Distillation for Pre-trained Language Models",
    "Ying Zhang, Ziheng Yang, Shufan Ji",
    2024,
    "https://arxiv.org/abs/2407.02775",
    "arXiv preprint arXiv:2407.02775",
    kind="article",
)
BERT_PKD = _paper(
    "sun2019patient",
    "Patient Knowledge Distillation for BERT Model Compression",
    "Siqi Sun, Yu Cheng, Zhe Gan, Jingjing Liu",
    2019,
    "https://arxiv.org/abs/1908.09355",
    "Proceedings of EMNLP-IJCNLP 2019",
)
BERT_EMD = _paper(
    "li2020bertemd",
    "BERT-EMD: Many-to-Many Layer Mapping for BERT Compression with Earth Mover's Distance",
    "Jianquan Li, Xiaokang Liu, Honghong Zhao, Ruifeng Xu, Min Yang, Yaohong Jin",
    2020,
    "https://arxiv.org/abs/2010.06133",
    "Proceedings of EMNLP 2020",
)
BERT = _paper(
    "devlin2019bert",
    "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    "Jacob Devlin, Ming-Wei Chang, Kenton Lee, Kristina Toutanova",
    2019,
    "https://arxiv.org/abs/1810.04805",
    "Proceedings of NAACL-HLT 2019",
)
