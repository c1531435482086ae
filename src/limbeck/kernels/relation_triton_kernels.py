"""The Triton kernels of `relation_kl`; importing this file needs Triton, so only `relation_triton` does, when it runs.

A program has a tile of rows of one unit (a head of a sample) and goes over the columns tile by tile, as flash
attention does. With p a row's products of vectors, m the greatest of them so far, and z = (p − m) / (ln 2 · √d) their
differences as base-2 logits, s = Σ exp2(z) and w = Σ exp2(z_T) · (z_T − z_S) over the columns so far:

    KL = ln 2 · (w / s_T + log2(s_S / s_T))
    G = ∂KL/∂(student logits, natural) = exp2(z_S − log2 s_S) − exp2(z_T − log2 s_T)
    ∂KL/∂student_a = G · student_b / √d
    ∂KL/∂student_b = Gᵀ · student_a / √d

Differences are taken after each model's greatest is off, as in `relation_block`. A log-sum-exp is kept as its two
terms, m and log2 s: their sum would be rounded at the size of m.

**Rounding.** The backward pass takes all products again, and nothing makes both passes round alike: another tile,
instruction or order of a sum is enough. Let η bound what rounding changes of a natural logit in either pass. It is
not small: vectors with a common offset have logits of thousands, and their rows mostly have all probability in one
place. Errors are still those of a softmax whose logits are computed once, up to a factor of 2, for these reasons:

1. The column t of a row's greatest product is kept beside m and log2 s, and z of column t is 0 by definition, whatever
   its product is in the backward pass. Now s = 1 + Σ over j ≠ t of exp(ℓ_j − ℓ_t) in natural logits ℓ. Rounding changes
   each difference by at most 2η, hence ln s by at most 2η · (1 − p_t). Each other column adds at most 2η of the
   backward pass. To first order in η:

       |δp_t| ≤ 2η · p_t · (1 − p_t)   and   |δp_j| ≤ 4η · p_j   for j ≠ t

   These errors of a row add up to less than 6η · (1 − p_t): none is left where p_t is 1. A softmax of logits that are
   computed once has |δp_j| ≤ 2η · p_j · (1 − p_j).
2. A row of G sums to 0, but for these errors. Its sum times the vector of column t is taken off the gradient. So the
   error of ∂KL/∂a_i is Σ_j δG_ij · (b_j − b_t) / √d, and an offset that all vectors share cancels.
3. Both models go through the same steps: where they agree, G is exactly 0.

The error of ∂KL/∂b_j is Σ_i δG_ij · a_i / √d, as it is where logits are computed once.

Multiplications and additions are joined where `tl.fma` says so, and nowhere else. Vectors are read where they lie,
`[B, L, heads · d]`, each token with its stride; coordinates past d count as 0.
"""

# Numbers that a kernel is compiled for are in capitals, as Triton's own kernels have them.
# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped, import-not-found"
import triton
import triton.language as tl

# Finite, so that differences of masked products are finite too; exp2 of it, scaled, is exactly 0.
MASKED_PRODUCT = tl.constexpr(-1e30)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _load(vectors, tokens, kept, stride, start, SIZE: tl.constexpr, CHUNK: tl.constexpr, WIDEN: tl.constexpr):
    """Load `CHUNK` coordinates of some tokens' vectors, from coordinate `start` of a head on, `[tokens, CHUNK]`.

    They are 0 for tokens that are not kept, and for coordinates past the head's `SIZE`. `WIDEN` loads them as float32.
    """
    coordinates = start + tl.arange(0, CHUNK)
    places = tokens.to(tl.int64)[:, None] * stride + coordinates[None, :]
    values = tl.load(vectors + places, mask=kept[:, None] & (coordinates < SIZE)[None, :], other=0.0)
    return values.to(tl.float32) if WIDEN else values


@triton.jit
def _products(
    left,
    left_head,
    left_tokens,
    left_kept,
    left_stride,
    right,
    right_head,
    right_tokens,
    right_kept,
    right_stride,
    one,
    SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Return the products of all left vectors with all right vectors, `[left tokens, right tokens]`.

    `left` and `right` are the first chunks of coordinates, which are loaded already; the others are loaded here.

    Matrix units round sums towards 0, so the products of chunks are summed outside of them. A compiler would move a
    plain sum into the matrix unit. It cannot move a sum with a factor that it does not know, so the sum is multiplied
    by `one`, an argument that is 1.
    """
    products = tl.dot(left, tl.trans(right), input_precision="ieee")
    for start in range(CHUNK, SIZE, CHUNK):
        more_left = _load(left_head, left_tokens, left_kept, left_stride, start, SIZE, CHUNK, WIDEN)
        more_right = _load(right_head, right_tokens, right_kept, right_stride, start, SIZE, CHUNK, WIDEN)
        products = tl.fma(tl.dot(more_left, tl.trans(more_right), input_precision="ieee"), one, products)
    return products


@triton.jit
def _kept(valid, tokens, length, MASKED: tl.constexpr):
    """Return which tokens of a sample exist, and are valid if there is a mask."""
    kept = tokens < length
    if MASKED:
        kept &= tl.load(valid + tokens, mask=kept, other=0) != 0
    return kept


@triton.jit
def _end(valid, first, length, SPAN: tl.constexpr):
    """Return the end of a sample's valid tokens: one more than the index of the last one.

    A tile of rows that begins behind it (`first`) has no valid row, and gets 0, so that it reads no columns. `SPAN` is
    a power of two that is at least `length`: the whole mask is read at once.
    """
    places = tl.arange(0, SPAN)
    stop = tl.max(tl.where(_kept(valid, places, length, True), places + 1, 0), 0)
    return tl.where(first < stop, stop, 0)


@triton.jit
def relation_forward_kernel(
    student_a,
    student_b,
    teacher_a,
    teacher_b,
    valid,
    divergence,
    student_terms,
    teacher_terms,
    length,
    heads,
    one,
    student_scale,
    teacher_scale,
    student_a_batch,
    student_a_token,
    student_b_batch,
    student_b_token,
    teacher_a_batch,
    teacher_a_token,
    teacher_b_batch,
    teacher_b_token,
    MASKED: tl.constexpr,
    SPAN: tl.constexpr,
    CAUSAL: tl.constexpr,
    STUDENT_SIZE: tl.constexpr,
    TEACHER_SIZE: tl.constexpr,
    STUDENT_CHUNK: tl.constexpr,
    TEACHER_CHUNK: tl.constexpr,
    WIDEN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write the divergence of `ROWS` rows in nats, `[B, heads, L]`, and the terms of both models' log-sum-exps.

    Terms are `[B, heads, 3, L]`: each row's greatest product, the base-2 logarithm of its sum, and the column of the
    greatest product. Rows that are not valid get 0 everywhere. `WIDEN` multiplies in float32, for an interpreter that
    cannot multiply bfloat16.
    """
    # The number of the program chooses the unit, and the first row of the tile.
    tiles = tl.cdiv(length, ROWS)
    unit = tl.program_id(0) // tiles
    first = (tl.program_id(0) % tiles) * ROWS
    sample = (unit // heads).to(tl.int64)
    head = unit % heads
    student_a += sample * student_a_batch + head * STUDENT_SIZE
    student_b += sample * student_b_batch + head * STUDENT_SIZE
    teacher_a += sample * teacher_a_batch + head * TEACHER_SIZE
    teacher_b += sample * teacher_b_batch + head * TEACHER_SIZE
    rows = first + tl.arange(0, ROWS)
    stop = length
    if MASKED:
        valid += sample * length
        stop = _end(valid, first, length, SPAN)
    if CAUSAL:
        stop = tl.minimum(stop, first + ROWS)
    counted = _kept(valid, rows, length, MASKED)
    student_rows = _load(student_a, rows, counted, student_a_token, 0, STUDENT_SIZE, STUDENT_CHUNK, WIDEN)
    teacher_rows = _load(teacher_a, rows, counted, teacher_a_token, 0, TEACHER_SIZE, TEACHER_CHUNK, WIDEN)
    # For each row, over the columns so far: m (most) with its column (place), s (sum) and w (weighted) of the formulas.
    student_most = tl.full([ROWS], MASKED_PRODUCT, tl.float32)
    teacher_most = tl.full([ROWS], MASKED_PRODUCT, tl.float32)
    student_place = tl.zeros([ROWS], tl.int32)
    teacher_place = tl.zeros([ROWS], tl.int32)
    student_sum = tl.zeros([ROWS], tl.float32)
    teacher_sum = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS], tl.float32)
    for start in range(0, stop, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        seen = _kept(valid, columns, length, MASKED)
        bias = tl.where(seen, 0.0, MASKED_PRODUCT)
        student_columns = _load(student_b, columns, seen, student_b_token, 0, STUDENT_SIZE, STUDENT_CHUNK, WIDEN)
        teacher_columns = _load(teacher_b, columns, seen, teacher_b_token, 0, TEACHER_SIZE, TEACHER_CHUNK, WIDEN)
        student = _products(
            student_rows, student_a, rows, counted, student_a_token,
            student_columns, student_b, columns, seen, student_b_token,
            one, STUDENT_SIZE, STUDENT_CHUNK, WIDEN,
        )  # fmt: skip
        teacher = _products(
            teacher_rows, teacher_a, rows, counted, teacher_a_token,
            teacher_columns, teacher_b, columns, seen, teacher_b_token,
            one, TEACHER_SIZE, TEACHER_CHUNK, WIDEN,
        )  # fmt: skip
        student += bias[None, :]
        teacher += bias[None, :]
        if CAUSAL:
            ahead = columns[None, :] > rows[:, None]
            student = tl.where(ahead, MASKED_PRODUCT, student)
            teacher = tl.where(ahead, MASKED_PRODUCT, teacher)
        # The greatest product of these columns may be a new greatest one of the row.
        student_top, student_column = tl.max(student, 1, return_indices=True)
        teacher_top, teacher_column = tl.max(teacher, 1, return_indices=True)
        student_place = tl.where(student_top > student_most, start + student_column, student_place)
        teacher_place = tl.where(teacher_top > teacher_most, start + teacher_column, teacher_place)
        student_new = tl.maximum(student_most, student_top)
        teacher_new = tl.maximum(teacher_most, teacher_top)
        # From here on `student` and `teacher` are z, the differences to the new greatest product as base-2 logits.
        student = (student - student_new[:, None]) * student_scale
        teacher = (teacher - teacher_new[:, None]) * teacher_scale
        # As long as a row has seen no valid column, its greatest product is MASKED_PRODUCT and its sums are
        # meaningless. The first valid column then multiplies them by 0. Every row that counts sees a valid column: its
        # own.
        student_exp = tl.exp2(student)
        teacher_exp = tl.exp2(teacher)
        # The sums so far are relative to the former greatest products, and have to be shifted to the new ones.
        student_shift = (student_most - student_new) * student_scale
        teacher_shift = (teacher_most - teacher_new) * teacher_scale
        rescale = tl.exp2(teacher_shift)
        weighted += teacher_sum * (teacher_shift - student_shift)
        weighted = rescale * weighted + tl.sum(teacher_exp * (teacher - student), 1)
        teacher_sum = rescale * teacher_sum + tl.sum(teacher_exp, 1)
        student_sum = tl.exp2(student_shift) * student_sum + tl.sum(student_exp, 1)
        student_most = student_new
        teacher_most = teacher_new
    # Rows that do not count have no sums; 1 avoids a division by 0.
    student_sum = tl.where(counted, student_sum, 1.0)
    teacher_sum = tl.where(counted, teacher_sum, 1.0)
    # Divisions are rounded to the nearest, so that a number divided by itself is 1 and its logarithm 0.
    bits = tl.div_rn(weighted, teacher_sum) + tl.log2(tl.div_rn(student_sum, teacher_sum))
    first_row = unit.to(tl.int64) * length
    inside = rows < length
    tl.store(divergence + first_row + rows, tl.where(counted, bits * LN_2, 0.0), mask=inside)
    student_terms += 3 * first_row
    teacher_terms += 3 * first_row
    _store_terms(student_terms, rows, counted, inside, length, student_most, student_sum, student_place)
    _store_terms(teacher_terms, rows, counted, inside, length, teacher_most, teacher_sum, teacher_place)


@triton.jit
def _store_terms(terms, rows, counted, inside, length, most, total, place):
    """Write the terms of some rows' log-sum-exps; the column is a float32, which is exact up to 2²⁴ columns."""
    tl.store(terms + rows, tl.where(counted, most, 0.0), mask=inside)
    tl.store(terms + length + rows, tl.where(counted, tl.log2(total), 0.0), mask=inside)
    tl.store(terms + 2 * length + rows, tl.where(counted, place, 0).to(tl.float32), mask=inside)


@triton.jit
def _load_terms(terms, tokens, kept, other, length):
    """Load the terms of some rows' log-sum-exps; for rows that are not kept they are `other`, 0 and −1."""
    most = tl.load(terms + tokens, mask=kept, other=other)
    log_sum = tl.load(terms + length + tokens, mask=kept, other=0.0)
    place = tl.load(terms + 2 * length + tokens, mask=kept, other=-1.0)
    return most, log_sum, place.to(tl.int32)


@triton.jit
def _probabilities(products, most, log_sum, place, columns, scale, ahead, CAUSAL: tl.constexpr):
    """Return probabilities from products, and terms that broadcast to them; 0 where `ahead`, if `CAUSAL`."""
    # The greatest product of a row differs from itself by 0, even if this pass rounds it in another way.
    below = tl.where(columns == place, 0.0, products - most)
    shifted = tl.fma(below, scale, -log_sum)
    if CAUSAL:
        shifted = tl.where(ahead, MASKED_PRODUCT, shifted)
    return tl.exp2(shifted)


@triton.jit
def relation_gradient_kernel(
    student_own,
    student_other,
    teacher_own,
    teacher_other,
    valid,
    student_terms,
    teacher_terms,
    upstream,
    gradient,
    length,
    heads,
    one,
    student_scale,
    teacher_scale,
    factor,
    student_own_batch,
    student_own_token,
    student_other_batch,
    student_other_token,
    teacher_own_batch,
    teacher_own_token,
    teacher_other_batch,
    teacher_other_token,
    AS_ROWS: tl.constexpr,
    AS_COLUMNS: tl.constexpr,
    MASKED: tl.constexpr,
    SPAN: tl.constexpr,
    CAUSAL: tl.constexpr,
    STUDENT_SIZE: tl.constexpr,
    TEACHER_SIZE: tl.constexpr,
    STUDENT_CHUNK: tl.constexpr,
    TEACHER_CHUNK: tl.constexpr,
    WIDEN: tl.constexpr,
    PRECISION: tl.constexpr,
    OWN: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """Write `STUDENT_CHUNK` coordinates of the gradient of `OWN` tokens of the student, `[B, L, heads · d]`.

    `own` are the vectors whose gradient is computed, and `other` are the vectors that they are compared with. With
    `AS_ROWS` the own vectors are a, and their gradient is G · other. With `AS_COLUMNS` they are b, and it is Gᵀ ·
    other. With both the relation is symmetric, and both parts come of the same logits.
    """
    # The number of the program chooses the unit, the first of the own tokens, and the first of the coordinates (part).
    parts = tl.cdiv(STUDENT_SIZE, STUDENT_CHUNK)
    part = (tl.program_id(0) % parts) * STUDENT_CHUNK
    tile = tl.program_id(0) // parts
    tiles = tl.cdiv(length, OWN)
    unit = tile // tiles
    first = (tile % tiles) * OWN
    sample = (unit // heads).to(tl.int64)
    head = unit % heads
    student_own += sample * student_own_batch + head * STUDENT_SIZE
    student_other += sample * student_other_batch + head * STUDENT_SIZE
    teacher_own += sample * teacher_own_batch + head * TEACHER_SIZE
    teacher_other += sample * teacher_other_batch + head * TEACHER_SIZE
    student_terms += 3 * unit.to(tl.int64) * length
    teacher_terms += 3 * unit.to(tl.int64) * length
    own = first + tl.arange(0, OWN)
    begin = 0
    stop = length
    if MASKED:
        valid += sample * length
        stop = _end(valid, first, length, SPAN)
    # Rows see no column behind them, and columns are seen by no row before them.
    if CAUSAL and not AS_COLUMNS:
        stop = tl.minimum(stop, first + OWN)
    if CAUSAL and not AS_ROWS:
        begin = first
    counted = _kept(valid, own, length, MASKED)
    student_left = _load(student_own, own, counted, student_own_token, 0, STUDENT_SIZE, STUDENT_CHUNK, WIDEN)
    teacher_left = _load(teacher_own, own, counted, teacher_own_token, 0, TEACHER_SIZE, TEACHER_CHUNK, WIDEN)
    if AS_ROWS:
        student_most, student_log, student_place = _load_terms(student_terms, own, counted, 0.0, length)
        teacher_most, teacher_log, teacher_place = _load_terms(teacher_terms, own, counted, 0.0, length)
    # The gradient so far, and for each row the sum of its part of G, which would be 0 without rounding.
    collected = tl.zeros([OWN, STUDENT_CHUNK], tl.float32)
    excess = tl.zeros([OWN], tl.float32)
    for start in range(begin, stop, OTHERS):
        others = start + tl.arange(0, OTHERS)
        seen = _kept(valid, others, length, MASKED)
        student_right = _load(student_other, others, seen, student_other_token, 0, STUDENT_SIZE, STUDENT_CHUNK, WIDEN)
        teacher_right = _load(teacher_other, others, seen, teacher_other_token, 0, TEACHER_SIZE, TEACHER_CHUNK, WIDEN)
        student = _products(
            student_left, student_own, own, counted, student_own_token,
            student_right, student_other, others, seen, student_other_token,
            one, STUDENT_SIZE, STUDENT_CHUNK, WIDEN,
        )  # fmt: skip
        teacher = _products(
            teacher_left, teacher_own, own, counted, teacher_own_token,
            teacher_right, teacher_other, others, seen, teacher_other_token,
            one, TEACHER_SIZE, TEACHER_CHUNK, WIDEN,
        )  # fmt: skip
        # G of these tokens, or Gᵀ, or the sum of both.
        change = tl.zeros([OWN, OTHERS], tl.float32)
        if AS_ROWS:
            columns = others[None, :]
            ahead = columns > own[:, None]
            change += _probabilities(
                student, student_most[:, None], student_log[:, None], student_place[:, None], columns,
                student_scale, ahead, CAUSAL,
            )  # fmt: skip
            change -= _probabilities(
                teacher, teacher_most[:, None], teacher_log[:, None], teacher_place[:, None], columns,
                teacher_scale, ahead, CAUSAL,
            )  # fmt: skip
            # Tokens that are not valid have products of 0, which may be above every product that the row has seen.
            change = tl.where(seen[None, :], change, 0.0)
            excess += tl.sum(change, 1)
        if AS_COLUMNS:
            columns = own[:, None]
            ahead = columns > others[None, :]
            student_top, student_rest, student_at = _load_terms(student_terms, others, seen, -MASKED_PRODUCT, length)
            teacher_top, teacher_rest, teacher_at = _load_terms(teacher_terms, others, seen, -MASKED_PRODUCT, length)
            change += _probabilities(
                student, student_top[None, :], student_rest[None, :], student_at[None, :], columns,
                student_scale, ahead, CAUSAL,
            )  # fmt: skip
            change -= _probabilities(
                teacher, teacher_top[None, :], teacher_rest[None, :], teacher_at[None, :], columns,
                teacher_scale, ahead, CAUSAL,
            )  # fmt: skip
        # The products above read all coordinates. The gradient needs this program's part of them.
        if STUDENT_CHUNK < STUDENT_SIZE:
            student_right = _load(
                student_other, others, seen, student_other_token, part, STUDENT_SIZE, STUDENT_CHUNK, WIDEN
            )
        if PRECISION == "halves":
            # G is cut into its leading 16 bits, which bfloat16 holds without rounding, and the rest.
            large = (change.to(tl.uint32, bitcast=True) & 0xFFFF0000).to(tl.float32, bitcast=True)
            collected = tl.dot(large.to(student_right.dtype), student_right, collected)
            collected = tl.dot((change - large).to(student_right.dtype), student_right, collected)
        else:
            collected = tl.dot(change, student_right.to(tl.float32), collected, input_precision=PRECISION)
    if AS_ROWS:
        # Rows of G would sum to 0 without rounding. An offset that all vectors have in common would multiply the
        # rounding, so the sum times the vector of the row's greatest product is subtracted (reason 2 above).
        greatest = _load(
            student_other, student_place, counted, student_other_token, part, STUDENT_SIZE, STUDENT_CHUNK, True
        )
        collected -= excess[:, None] * greatest
    collected *= tl.load(upstream) * factor
    coordinates = part + tl.arange(0, STUDENT_CHUNK)
    places = (sample * length + own)[:, None] * (heads * STUDENT_SIZE) + (head * STUDENT_SIZE + coordinates)[None, :]
    # The gradient of padding is exactly 0. The number so far may be anything there, even infinite or NaN.
    collected = tl.where(counted[:, None], collected, 0.0).to(gradient.dtype.element_ty)
    tl.store(gradient + places, collected, mask=(own < length)[:, None] & (coordinates < STUDENT_SIZE)[None, :])
