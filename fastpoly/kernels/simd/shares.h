/* A pass is cut into shares. Several threads take one share after the other until none is left.

Helpers live as long as one pass. No thread spins: the caller works like the others, then sleeps
until the shares of the others are done. A helper that gets no processor in time takes no share, and
the caller does not wait for it. While such helpers queue, no more are started. Starting one takes
about 20 microseconds.

On busy cores a helper may lose its processor in the middle of a share. The caller then waits longer
than it would have worked. Such losses are a debt. While there is a debt, passes run without helpers
and pay it back with a part of their time. So helpers cost little at worst. The results do not
depend on which thread computes a share.

Python's own threads and locks are used for portability; no share touches the interpreter. */
#ifndef FP_SHARES_H
#define FP_SHARES_H

#include <Python.h>
#include <pythread.h>
#include <time.h>

#define FP_DEBT_RATE 0.05     /* share of the time that helpers may cost */

typedef void (*fp_share)(int share, int worker, void *job);

typedef struct {
    fp_share work;
    void *job;
    int n_shares;
    int next;                 /* the first share that no thread has taken */
    int unfinished;           /* shares */
    int workers;              /* numbers given out */
    int users;                /* threads that may still read this */
    PyThread_type_lock done;  /* released with the last share */
} fp_pass;

/* Variables of the whole process, read and set atomically. */
static long long fp_debt;     /* nanoseconds */
static int fp_queued;         /* helpers that have not begun */

/* Called in a forked child, which has no helpers. */
static void fp_after_fork(void) { fp_queued = 0; }

static double fp_now(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static void fp_owe(double nanoseconds) {
    double debt = (double)__atomic_load_n(&fp_debt, __ATOMIC_RELAXED) + nanoseconds;
    debt = debt < 0 ? 0 : debt > 1e9 ? 1e9 : debt; /* in case the clock was set */
    __atomic_store_n(&fp_debt, (long long)debt, __ATOMIC_RELAXED);
}

/* Take shares while there are any; return how many were taken. */
static int fp_take_shares(fp_pass *pass) {
    int share, worker = 0, taken = 0;
    while ((share = __atomic_fetch_add(&pass->next, 1, __ATOMIC_RELAXED)) < pass->n_shares) {
        if (taken++ == 0) worker = __atomic_fetch_add(&pass->workers, 1, __ATOMIC_RELAXED);
        pass->work(share, worker, pass->job);
        if (__atomic_sub_fetch(&pass->unfinished, 1, __ATOMIC_ACQ_REL) == 0)
            PyThread_release_lock(pass->done);
    }
    return taken;
}

static void fp_leave(fp_pass *pass) {
    if (__atomic_sub_fetch(&pass->users, 1, __ATOMIC_ACQ_REL) == 0) {
        PyThread_free_lock(pass->done);
        PyMem_RawFree(pass);
    }
}

static void fp_help(void *pass) {
    __atomic_sub_fetch(&fp_queued, 1, __ATOMIC_RELAXED);
    fp_take_shares((fp_pass *)pass);
    fp_leave((fp_pass *)pass);
}

static void fp_start_helper(fp_pass *pass, int most) {
    int queued = __atomic_add_fetch(&fp_queued, 1, __ATOMIC_RELAXED);
    if (queued > most || PyThread_start_new_thread(fp_help, pass) == PYTHREAD_INVALID_THREAD_ID) {
        __atomic_sub_fetch(&fp_queued, 1, __ATOMIC_RELAXED);
        fp_leave(pass); /* in its place */
    }
}

static void fp_run_alone(fp_share work, void *job, int n_shares) {
    for (int share = 0; share < n_shares; share++) work(share, 0, job);
}

static void fp_run_with_helpers(
    fp_share work, void *job, int n_shares, int n_helpers, fp_pass *pass, PyThread_type_lock done
) {
    double began = fp_now(), worked, waited;
    int taken, helper;
    *pass = (fp_pass){work, job, n_shares, 0, n_shares, 0, n_helpers + 1, done};
    PyThread_acquire_lock(done, 1);
    for (helper = 0; helper < n_helpers; helper++) fp_start_helper(pass, n_helpers);
    taken = fp_take_shares(pass);
    worked = fp_now() - began;
    PyThread_acquire_lock(done, 1);
    waited = fp_now() - began - worked;
    fp_leave(pass);
    /* The shares of the others would have cost as much as one's own. */
    fp_owe(waited - (n_shares - taken) * worked / (taken > 0 ? taken : 1));
}

/* Run work(share, worker, job) for every share; worker < n_threads, each used by one share at a
   time. always: use helpers, whatever they cost. */
static void fp_run_shares(fp_share work, void *job, int n_shares, int n_threads, int always) {
    int n_helpers = (n_threads < n_shares ? n_threads : n_shares) - 1;
    if (n_helpers < 1) {
        fp_run_alone(work, job, n_shares);
    } else if (!always && __atomic_load_n(&fp_debt, __ATOMIC_RELAXED) > 0) {
        double began = fp_now();
        fp_run_alone(work, job, n_shares);
        fp_owe(FP_DEBT_RATE * (began - fp_now()));
    } else {
        fp_pass *pass = (fp_pass *)PyMem_RawMalloc(sizeof(fp_pass));
        PyThread_type_lock done = pass ? PyThread_allocate_lock() : NULL;
        if (done) {
            fp_run_with_helpers(work, job, n_shares, n_helpers, pass, done);
        } else {
            PyMem_RawFree(pass);
            fp_run_alone(work, job, n_shares);
        }
    }
}

#endif
