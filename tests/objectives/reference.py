"""The papers' equations written out one number at a time, in float64 Python: slow, plain, and sharing nothing.

No helper of the package is imported, on purpose. Vectors come as nested lists `[B][L][width]` (or `[B][width]`), masks
as `[B][L]` of truth values; keywords are called as the objectives'. Each function returns `(total, count)`.
"""

import math

from scipy.optimize import linprog


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


def hidden_mse(student, teacher, valid=None, projection=None, bias=None):
    """Comparative study eq. 6 for one pair of layers: squared differences over tokens and features."""
    total, count = [], 0
    for b in range(len(student)):
        for t in _tokens(valid, b, len(student[b])):
            mapped = student[b][t] if projection is None else _times(student[b][t], projection)
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


def direct_mse(student, teacher, heads, valid=None, projections=None):
    """Comparative study eq. 10 for one of Q, K, V: Σ over heads of a mean over tokens and a head's features."""
    means, tokens = [], sum(len(_tokens(valid, b, len(student[b]))) for b in range(len(student)))
    size = len(teacher[0][0]) // heads
    for head in range(heads):
        squares = []
        for b in range(len(student)):
            for t in _tokens(valid, b, len(student[b])):
                own = _head(student[b][t], head, heads)
                mapped = own if projections is None else _times(own, projections[head])
                squares += [(x - y) ** 2 for x, y in zip(mapped, _head(teacher[b][t], head, heads), strict=True)]
        means.append(math.fsum(squares) / (tokens * size))
    # The sum of means, times a count that makes `total / count` that sum again.
    return math.fsum(means) * tokens * size, tokens * size


def soft_label_kl(student, teacher, temperature=1.0, valid=None):
    """T² KL(softmax(z^T/T) ‖ softmax(z^S/T)) per row (Hinton; comparative study eq. 5 minus the entropy)."""
    total, count = [], 0
    for b in range(len(student)):
        for t in _tokens(valid, b, len(student[b])):
            rows = [_softmax([z / temperature for z in model[b][t]]) for model in (teacher, student)]
            total.append(temperature**2 * _divergence(*rows))
            count += 1
    return math.fsum(total), count


def masked_lm_ce(logits, labels, class_weights=None):
    """Minus the log of the label's share, over the rows of scores whose label is not −100."""
    rows = [pair for both in zip(logits, labels, strict=True) for pair in zip(*both, strict=True)]
    weights = class_weights or [1] * len(rows[0][0])
    found = [-weights[label] * math.log(_softmax(scores)[label]) for scores, label in rows if label != -100]
    return math.fsum(found), len(found)


def hard_label_ce(logits, labels, class_weights=None):
    """The same of the start and the end of answers, `[B][2][L]`, or with a weight for each class."""
    return masked_lm_ce(logits, labels, class_weights)


def _sigmoid(score):
    return 1 / (1 + math.exp(-score))


def hard_label_binary_ce(logits, labels, class_weights=None):
    """−w y log σ(z) − (1 − y) log(1 − σ(z)) of every row and class."""
    total = []
    for scores, wanted in zip(logits, labels, strict=True):
        for c, (z, y) in enumerate(zip(scores, wanted, strict=True)):
            share = _sigmoid(z)
            total.append(-(class_weights[c] if class_weights else 1) * y * math.log(share))
            total.append(-(1 - y) * math.log(1 - share))
    return math.fsum(total), len(logits) * len(logits[0])


def soft_label_binary_kl(student, teacher, temperature=1.0):
    """T² times the divergence of (q, 1 − q) from (p, 1 − p) for every row and class, by the logistic function."""
    total = []
    for own, other in zip(student, teacher, strict=True):
        for z, y in zip(own, other, strict=True):
            p, q = _sigmoid(y / temperature), _sigmoid(z / temperature)
            total.append(temperature**2 * _divergence([p, 1 - p], [q, 1 - q]))
    return math.fsum(total), len(student) * len(student[0])


def sample_relation_kl(student, teacher):
    """MLKD-BERT eq. 13–15 before the division by b."""
    total = []
    for i in range(len(student)):
        rows = [_softmax([_dot(g[i], g[j]) / math.sqrt(len(g[i])) for j in range(len(g))]) for g in (teacher, student)]
        total.append(_divergence(*rows))
    return math.fsum(total), len(student)


def sample_contrastive(student, teacher, labels, temperature=0.07):
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


def pooled_cosine(student, teacher, projection=None, prefix=None):
    """1 − cos over samples, of the first features."""
    total = []
    for x, y in zip(student, teacher, strict=True):
        mapped, y = (x if projection is None else _times(x, projection))[:prefix], y[:prefix]
        total.append(1 - _dot(mapped, y) / (_norm(mapped) * _norm(y)))
    return math.fsum(total), len(student)


def pooled_distance(student, teacher, projection=None, squared=False, prefix=None):
    """LEAF: the norm of the error, or its square, over samples; of prefixes at length one."""
    total = []
    for x, y in zip(student, teacher, strict=True):
        mapped = x if projection is None else _times(x, projection)
        if prefix is not None:
            cut = mapped[:prefix], y[:prefix]
            mapped, y = ([u / _norm(vector) for u in vector] for vector in cut)
        distance = math.fsum((u - v) ** 2 for u, v in zip(mapped, y, strict=True))
        total.append(distance if squared else math.sqrt(distance))
    return math.fsum(total), len(student)


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


def _lists_of(student, teacher, groups):
    """The scores of the documents of each query that has several."""
    for query in sorted(set(groups)):
        rows = [row for row, number in enumerate(groups) if number == query]
        if len(rows) > 1:
            yield [student[row][0] for row in rows], [teacher[row][0] for row in rows]


def margin_mse(student, teacher, groups):
    """Margin-MSE, of every two documents of a query: ((s_i − s_j) − (t_i − t_j))², their mean."""
    total, count = 0.0, 0
    for s, t in _lists_of(student, teacher, groups):
        pairs = [(i, j) for i in range(len(s)) for j in range(i)]
        total += math.fsum(((s[i] - s[j]) - (t[i] - t[j])) ** 2 for i, j in pairs) / len(pairs)
        count += 1
    return total, count


def listwise_kl(student, teacher, groups, temperature=1.0):
    """T² Σ_i p_i log(p_i / q_i) over the documents of each query."""
    total, count = 0.0, 0
    for s, t in _lists_of(student, teacher, groups):
        q, p = _softmax([x / temperature for x in s]), _softmax([x / temperature for x in t])
        total += temperature**2 * math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        count += 1
    return total, count


def transport(costs, own, other):
    """The least Σ f_ij D_ij and its flow: f ≥ 0, with row sums `own` and column sums `other`."""
    m, n = len(own), len(other)
    rows = [[float(k // n == i) for k in range(m * n)] for i in range(m)]
    columns = [[float(k % n == j) for k in range(m * n)] for j in range(n)]
    found = linprog([cost for row in costs for cost in row], A_eq=[*rows, *columns], b_eq=[*own, *other])
    return found.fun, found.x.reshape(m, n)


def _moved(pairs, own, other):
    """BERT-EMD: Σ f_ij D_ij / Σ f_ij of pairs of layers, each a `(total, count)`, times their count."""
    weights = [given or [1 / size] * size for given, size in ((own, len(pairs)), (other, len(pairs[0])))]
    count = pairs[0][0][1]
    least, flow = transport([[total / max(1, count) for total, _ in row] for row in pairs], *weights)
    return least / flow.sum() * count, count


def layer_emd(student, teacher, valid=None, projection=None, student_weights=None, teacher_weights=None):
    """BERT-EMD's distance between hidden states of all layers."""
    pairs = [[hidden_mse(x, y, valid, projection) for y in teacher] for x in student]
    return _moved(pairs, student_weights, teacher_weights)


def attention_layer_emd(student, teacher, heads, valid=None, student_weights=None, teacher_weights=None):
    """BERT-EMD's distance between attention scores of all layers, each a query and a key."""
    pairs = [[attention_score_mse(*x, *y, heads, valid) for y in teacher] for x in student]
    return _moved(pairs, student_weights, teacher_weights)


def cost_attention(costs, flow, weights, temperature):
    """BERT-EMD's new weights of the layers along the rows, from their unit transferring costs."""
    unit = [math.fsum(d * f for d, f in zip(*rows, strict=True)) for rows in zip(costs, flow, strict=True)]
    unit = [c / w for c, w in zip(unit, weights, strict=True)]
    return _softmax([math.fsum(unit) / c / temperature for c in unit])
