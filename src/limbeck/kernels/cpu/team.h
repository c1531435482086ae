/* Work of a kernel in parts, each taken by the next thread that is free: see team.py. */
#ifndef LIMBECK_TEAM_H
#define LIMBECK_TEAM_H

#include <stdint.h>

typedef struct {
    void (*compute)(const void *of, int64_t first, int64_t last, float *scratch);
    const void *of;
    const int64_t *parts;   /* first and last (exclusive) of each */
    float *scratch;
    int64_t count, size;    /* parts; numbers of scratch that a thread has */
    int64_t taken, threads; /* so far */
} team;

/* What each thread of a team runs. One that finds no part takes no scratch. */
void join(team *of) {
    float *scratch = 0;
    int64_t part;
    while ((part = __atomic_fetch_add(&of->taken, 1, __ATOMIC_RELAXED)) < of->count) {
        if (!scratch) scratch = of->scratch + of->size * __atomic_fetch_add(&of->threads, 1, __ATOMIC_RELAXED);
        of->compute(of->of, of->parts[2 * part], of->parts[2 * part + 1], scratch);
    }
}

#endif
