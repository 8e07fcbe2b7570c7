# The work of one share of a pass; see `run_shares`.
ctypedef void (*share_function)(int share, int worker, void* job) noexcept nogil


# Seconds of a pass between two checks for Ctrl-C.
cdef double RANGE_SECONDS

# Estimates of the time of a current processor, to decide on threads: 25 GFLOP/s, and the loss of
# one row and output.
cdef inline double flop_seconds(double count) noexcept nogil:
    return 4e-11 * count


cdef inline double loss_seconds(double count) noexcept nogil:
    return 3e-9 * count


cpdef int effective_n_threads(object n_threads=*) except -1
cdef int threads_for(int n_threads, double seconds) noexcept nogil
cdef int shares_for(int n_threads, double seconds, double size) noexcept nogil
cdef void run_shares(
    share_function work, void* job, int n_shares, int n_threads
) noexcept nogil
