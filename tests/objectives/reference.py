"""The papers' equations written out one number at a time, in float64 Python: slow, plain, and sharing nothing.

No helper of the package is imported, on purpose. Vectors come as nested lists `[B][L][width]` (or `[B][width]`), masks
as `[B][L]` of truth values. Each function returns `(total, count)`.
"""

import math


def _softmax(scores):
    greatest = max(scores)
    exps = [math.exp(s - greatest) for s in scores]
    whole = math.fsum(exps)
    return [e / whole for e in exps]


def _divergence(p, q):
    return math.fsum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True) if a > 0)


def _dot(x, y):
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def _norm(x):
    return math.sqrt(_dot(x, x))


def _head(vector, head, heads):
    size = len(vector) // heads
    return vector[head * size : (head + 1) * size]


def _times(vector, matrix):
    return [math.fsum(v * row[j] for v, row in zip(vector, matrix, strict=True)) for j in range(len(matrix[0]))]


def _tokens(valid, b, length):
    return [t for t in range(length) if valid is None or valid[b][t]]


def relation_kl(student_a, student_b, teacher_a, teacher_b, heads, valid=None, causal=False):
    """MiniLMv2 eq. 6–8 before its division: sum over samples, heads and rows; count = heads × rows."""
    total, count = [], 0
    for b in range(len(student_a)):
        tokens = _tokens(valid, b, len(student_a[b]))
        for head in range(heads):
            for t in tokens:
                columns = [j for j in tokens if j <= t] if causal else tokens
                rows = []
                for left, right in ((teacher_a, teacher_b), (student_a, student_b)):
                    size = len(left[b][t]) // heads
                    query = _head(left[b][t], head, heads)
                    keys = [_head(right[b][j], head, heads) for j in columns]
                    rows.append(_softmax([_dot(query, key) / math.sqrt(size) for key in keys]))
                total.append(_divergence(*rows))
                count += 1
    return math.fsum(total), count


def attention_score_mse(student_q, student_k, teacher_q, teacher_k, heads, valid=None):
    """TinyBERT's attention term on scores before softmax: squared differences over heads and token pairs."""
    total, count = [], 0
    for b in range(len(student_q)):
        tokens = _tokens(valid, b, len(student_q[b]))
        for head in range(heads):
            for i in tokens:
                for j in tokens:
                    scores = []
                    for q, k in ((student_q, student_k), (teacher_q, teacher_k)):
                        size = len(q[b][i]) // heads
                        scores.append(_dot(_head(q[b][i], head, heads), _head(k[b][j], head, heads)) / math.sqrt(size))
                    total.append((scores[0] - scores[1]) ** 2)
                    count += 1
    return math.fsum(total), count


def hidden_mse(student, teacher, valid=None, matrix=None, bias=None):
    """Comparative study eq. 6 for one pair of layers: squared differences over tokens and features."""
    total, count = [], 0
    for b in range(len(student)):
        for t in _tokens(valid, b, len(student[b])):
            mapped = student[b][t] if matrix is None else _times(student[b][t], matrix)
            for f in range(len(teacher[b][t])):
                total.append((mapped[f] + (bias[f] if bias else 0.0) - teacher[b][t][f]) ** 2)
                count += 1
    return math.fsum(total), count


def hidden_cosine(student, teacher, valid=None):
    """DistilBERT's cosine term: 1 − cos over tokens."""
    total, count = [], 0
    for b in range(len(student)):
        for t in _tokens(valid, b, len(student[b])):
            x, y = student[b][t], teacher[b][t]
            total.append(1 - _dot(x, y) / (_norm(x) * _norm(y)))
            count += 1
    return math.fsum(total), count


def direct_mse(student, teacher, heads, valid=None, matrices=None):
    """Comparative study eq. 10 for one of Q, K, V: Σ over heads of a mean over tokens and a head's features."""
    means, tokens = [], sum(len(_tokens(valid, b, len(student[b]))) for b in range(len(student)))
    size = len(teacher[0][0]) // heads
    for head in range(heads):
        squares = []
        for b in range(len(student)):
            for t in _tokens(valid, b, len(student[b])):
                own = _head(student[b][t], head, heads)
                mapped = own if matrices is None else _times(own, matrices[head])
                squares += [(x - y) ** 2 for x, y in zip(mapped, _head(teacher[b][t], head, heads), strict=True)]
        means.append(math.fsum(squares) / (tokens * size))
    # The sum of means, times a count that makes `total / count` that sum again.
    return math.fsum(means) * tokens * size, tokens * size


def soft_label_kl(student_rows, teacher_rows, temperature, valid_rows=None):
    """T² KL(softmax(z^T/T) ‖ softmax(z^S/T)) per row (Hinton; comparative study eq. 5 minus the entropy)."""
    total, count = [], 0
    for r, (student, teacher) in enumerate(zip(student_rows, teacher_rows, strict=True)):
        if valid_rows is not None and not valid_rows[r]:
            continue
        p = _softmax([z / temperature for z in teacher])
        q = _softmax([z / temperature for z in student])
        total.append(temperature**2 * _divergence(p, q))
        count += 1
    return math.fsum(total), count


def masked_lm_ce(logits, labels):
    """Cross entropy over the positions whose label is not −100."""
    return hard_label_ce([row for rows in logits for row in rows], [label for row in labels for label in row])


def sample_relation_kl(student, teacher):
    """MLKD-BERT eq. 13–15 before the division by b."""
    total = []
    for i in range(len(student)):
        rows = [_softmax([_dot(g[i], g[j]) / math.sqrt(len(g[i])) for j in range(len(g))]) for g in (teacher, student)]
        total.append(_divergence(*rows))
    return math.fsum(total), len(student)


def sample_contrastive(student, teacher, labels, temperature):
    """MLKD-BERT eq. 16–17 before the division by 2b, with exp(h·h/ρ) and one sum over i."""
    h = [*student, *teacher]
    y = [*labels, *labels]
    total = []
    for i in range(len(h)):
        others = [a for a in range(len(h)) if a != i]
        positives = [p for p in others if y[p] == y[i]]
        whole = math.fsum(math.exp(_dot(h[i], h[a]) / temperature) for a in others)
        losses = [-math.log(math.exp(_dot(h[i], h[p]) / temperature) / whole) for p in positives]
        total.append(math.fsum(losses) / len(positives))
    return math.fsum(total), len(h)


def patient_mse(student, teacher):
    """BERT-PKD: ‖h^S/‖h^S‖ − h^T/‖h^T‖‖² over samples."""
    total = []
    for x, y in zip(student, teacher, strict=True):
        a, b = _norm(x), _norm(y)
        total.append(math.fsum((u / a - v / b) ** 2 for u, v in zip(x, y, strict=True)))
    return math.fsum(total), len(student)


def pooled_cosine(student, teacher, matrix=None):
    """1 − cos over samples."""
    total = []
    for x, y in zip(student, teacher, strict=True):
        mapped = x if matrix is None else _times(x, matrix)
        total.append(1 - _dot(mapped, y) / (_norm(mapped) * _norm(y)))
    return math.fsum(total), len(student)


def hard_label_ce(rows, labels):
    """Minus the log of the label's share, over rows (lists of scores) that have a label."""
    found = [-math.log(_softmax(row)[label]) for row, label in zip(rows, labels, strict=True) if label != -100]
    return math.fsum(found), len(found)


def soft_label_mse(student, teacher):
    """Sum of (z^S - z^T)^2 over samples and values."""
    total, count = 0.0, 0
    for own, other in zip(student, teacher, strict=True):
        for z, y in zip(own, other, strict=True):
            total += (z - y) ** 2
            count += 1
    return total, count


def hard_label_mse(values, labels):
    """Sum of (z - y)^2 over samples with one value each."""
    return sum((row[0] - label) ** 2 for row, label in zip(values, labels, strict=True)), len(labels)
