cpdef int effective_n_threads(object n_threads=*) except -1
cdef int threads_for(int n_threads, double work) noexcept nogil
cdef int live_threads(int n_threads) noexcept nogil
