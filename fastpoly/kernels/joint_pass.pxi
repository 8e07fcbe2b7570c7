# The pass of a JointObjective: shares of the rows, the threads that take them, and their memory.

cdef extern from *:
    """
    #include <string.h>

    static inline void fp_prefetch(const double *p, Py_ssize_t size) {
        for (Py_ssize_t i = 0; i < size; i += 8) __builtin_prefetch(p + i, 0, 2);
    }

    static inline void fp_copy_rows(const double *table, const unsigned char *levels, Py_ssize_t n,
                                    Py_ssize_t width, double *Y) {
        for (Py_ssize_t i = 0; i < n; i++)
            memcpy(Y + i * width, table + levels[i] * width, width * sizeof(double));
    }

    /* Copies of a known width take one or two instructions; of others, a call. */
    static inline void fp_look_up(const double *table, const unsigned char *levels, Py_ssize_t n,
                                  Py_ssize_t width, double *Y) {
        switch (width) {
        case 1: fp_copy_rows(table, levels, n, 1, Y); break;
        case 2: fp_copy_rows(table, levels, n, 2, Y); break;
        case 3: fp_copy_rows(table, levels, n, 3, Y); break;
        case 4: fp_copy_rows(table, levels, n, 4, Y); break;
        default: fp_copy_rows(table, levels, n, width, Y);
        }
    }
    """
    void prefetch "fp_prefetch"(const double* p, Py_ssize_t size) noexcept nogil
    # Y (n, width): for every level, its row of the table.
    void look_up "fp_look_up"(
        const double* table, const unsigned char* levels, Py_ssize_t n, Py_ssize_t width, double* Y
    ) noexcept nogil


cdef struct joint_pass:
    void* objective                  # JointPass
    int n_shares, n_parts            # shares of the rows, parts of the features
    Py_ssize_t start, stop           # the next rows of every share
    Py_ssize_t k
    bint basis
    const double* x
    double* P                        # x in the layout that the rows need
    double* D
    const double* C                  # for a pass for curvature, with the squares of V
    double* squares
    double* sums                     # one slot per share
    Py_ssize_t slot
    double* values                   # one per share, APART
    double* buffers                  # one per worker
    Py_ssize_t buffer
    double* g


cdef class JointPass:
    """Rows, loss and targets, and the sums over them that threads share."""

    cdef int threads(self, Py_ssize_t k) noexcept nogil:
        return threads_for(self.n_threads, self.n * self.rows.seconds(k))

    cdef Py_ssize_t at_once(self, Py_ssize_t k, int threads, int n_shares) noexcept nogil:
        """Rows of a share between two checks for signals: whole blocks."""
        cdef Py_ssize_t step = self.rows.block(k)
        cdef double seconds = RANGE_SECONDS * threads / n_shares
        return max(1, <Py_ssize_t> (seconds / self.rows.seconds(k)) // step) * step

    cdef double run(
        self, const double* x, Py_ssize_t k, bint basis, double* D, double* g
    ) except? -1:
        cdef joint_pass p
        cdef int threads = self.threads(k)
        cdef Py_ssize_t step = self.rows.block(k), most, at_once
        cdef Py_ssize_t layout = whole_lines(self.rows.layout_size(k)) + APART
        p.slot = whole_lines(self.rows.sums_size(k)) + APART
        p.buffer = whole_lines(self.rows.buffer_size(k) + 3 * step * self.m) + APART
        p.n_shares = shares_for(threads, self.n * self.rows.seconds(k), p.slot)
        memory = take(
            self.spare, LINE + layout + p.n_shares * (p.slot + APART) + threads * p.buffer
        )
        cdef double[::1] view = memory
        p.objective, p.k, p.basis, p.x, p.D, p.g = <void*> self, k, basis, x, D, g
        p.P = aligned(&view[0])
        p.sums = p.P + layout
        p.buffers = p.sums + p.n_shares * p.slot
        p.values = p.buffers + threads * p.buffer
        # Laying out and adding up take about 2 ns per feature and basis vector.
        p.n_parts = threads_for(threads, flop_seconds(50.0 * k * self.d)) if self.X.sparse else 1
        most = self.n // p.n_shares + 1  # rows of the largest share
        at_once = self.at_once(k, threads, p.n_shares)
        with nogil:
            run_shares(lay_out_part, &p, p.n_parts, p.n_parts)
        p.start = 0
        while p.start < most:
            p.stop = p.start + at_once
            with nogil:
                run_shares(run_share, &p, p.n_shares, threads)
            p.start = p.stop
            if p.start < most:
                PyErr_CheckSignals()
        with nogil:
            run_shares(finish_part, &p, p.n_parts, p.n_parts)
        cdef double value = 0
        cdef int share
        for share in range(p.n_shares):
            value += p.values[share * APART]
        self.spare.append(memory)
        return value

    cdef double add_rows(
        self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k, bint basis, const double* x,
        const double* P, double* D, double* sums, double* buffer
    ) noexcept nogil:
        """The value of some rows, with their gradients added to the sums."""
        cdef Py_ssize_t step = self.rows.block(k), m = self.m, y_width = self.Y_rows.shape[1], end
        cdef double* O = buffer
        cdef double* own = O + step * m
        cdef double* looked_up = own + step * m
        cdef double* gradients
        cdef const double* w = NULL
        cdef const double* Y
        cdef double value = 0
        buffer = looked_up + step * m
        while first < last:
            end = min(first + step, last)
            if self.levels is not None:
                look_up(&self.Y_rows[0, 0], &self.levels[first], end - first, y_width, looked_up)
                Y = looked_up
            else:
                Y = &self.Y_rows[first, 0]
            # The targets come from memory, so prefetch those of the next block.
            if end < last and self.levels is None:
                prefetch(&self.Y_rows[end, 0], (min(end + step, last) - end) * y_width)
            self.rows.outputs(k, first, end, x, P, O, buffer)
            if self.w_rows is not None:
                w = &self.w_rows[first]
            gradients = own if D == NULL else D + first * m
            value += self.compiled.rows(Y, O, w, gradients, end - first, m, y_width)
            self.rows.add_gradient(k, basis, first, end, x, P, gradients, sums, buffer)
            first = end
        return value

    cdef int sum_curvature(
        self, const double[::1] x, Py_ssize_t k, const double[:, ::1] C, double[:, ::1] basis,
        double[:, ::1] output, double[:, ::1] linear
    ) except -1:
        cdef joint_pass p
        cdef int threads = self.threads(k)
        cdef Py_ssize_t d = self.d, m = self.m, most, at_once, i
        cdef Py_ssize_t layout = whole_lines(self.rows.layout_size(k)) + APART
        p.slot = whole_lines(self.rows.curvature_sums_size(k)) + APART
        p.buffer = whole_lines(self.rows.curvature_buffer_size(k)) + APART
        p.n_shares = shares_for(threads, self.n * self.rows.seconds(k), p.slot)
        memory = take(
            self.spare,
            LINE + layout + p.n_shares * p.slot + threads * p.buffer + whole_lines(k * m) + APART,
        )
        cdef double[::1] view = memory
        p.objective, p.k, p.x, p.C = <void*> self, k, &x[0], &C[0, 0]
        p.P = aligned(&view[0])
        p.sums = p.P + layout
        p.buffers = p.sums + p.n_shares * p.slot
        p.squares = p.buffers + threads * p.buffer
        cdef double none = 0
        cdef double* at_basis = &basis[0, 0] if k else &none
        cdef double* at_output = &output[0, 0] if k else &none
        cdef double* at_linear = &linear[0, 0] if linear is not None else NULL
        self.rows.lay_out(k, p.x, 0, d, p.P)
        for i in range(k * m):
            p.squares[i] = x[k * d + i] * x[k * d + i]
        most = self.n // p.n_shares + 1
        at_once = self.at_once(k, threads, p.n_shares)
        p.start = 0
        while p.start < most:
            p.stop = p.start + at_once
            with nogil:
                run_shares(run_curvature_share, &p, p.n_shares, threads)
            p.start = p.stop
            if p.start < most:
                PyErr_CheckSignals()
        self.rows.finish_curvature(k, p.x, p.P, p.sums, p.slot, p.n_shares, at_basis, at_output,
                                   at_linear)
        self.spare.append(memory)
        return 0

    cdef void add_curvature(
        self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k, const double* x, const double* P,
        const double* squares, const double* C, double* sums, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t step = self.rows.block(k), end
        while first < last:
            end = min(first + step, last)
            self.rows.add_curvature(k, first, end, x, P, squares, C, sums, buffer)
            first = end


# --- the work of the threads of a pass ---

cdef void lay_out_part(int part, int worker, void* job) noexcept nogil:
    cdef joint_pass* p = <joint_pass*> job
    cdef Py_ssize_t d = (<JointPass> p.objective).d
    (<JointPass> p.objective).rows.lay_out(
        p.k, p.x, cut(d, part, p.n_parts), cut(d, part + 1, p.n_parts), p.P
    )


cdef void finish_part(int part, int worker, void* job) noexcept nogil:
    cdef joint_pass* p = <joint_pass*> job
    cdef Py_ssize_t d = (<JointPass> p.objective).d
    (<JointPass> p.objective).rows.finish(
        p.k, p.basis, p.x, p.P, p.sums, p.slot, p.n_shares, cut(d, part, p.n_parts),
        cut(d, part + 1, p.n_parts), p.g
    )


cdef void run_share(int share, int worker, void* job) noexcept nogil:
    cdef joint_pass* p = <joint_pass*> job
    cdef Py_ssize_t n = (<JointPass> p.objective).n
    cdef Py_ssize_t begin = n * share // p.n_shares, end = n * (share + 1) // p.n_shares
    cdef double* sums = p.sums + share * p.slot
    cdef double* value = p.values + share * APART
    if p.start == 0:
        memset(sums, 0, p.slot * sizeof(double))
        value[0] = 0
    value[0] += (<JointPass> p.objective).add_rows(
        begin + p.start, min(begin + p.stop, end), p.k, p.basis, p.x, p.P, p.D, sums,
        p.buffers + worker * p.buffer
    )
    if begin + p.start < end <= begin + p.stop:
        (<JointPass> p.objective).rows.complete(p.k, p.x, p.P, sums)


cdef void run_curvature_share(int share, int worker, void* job) noexcept nogil:
    cdef joint_pass* p = <joint_pass*> job
    cdef Py_ssize_t n = (<JointPass> p.objective).n
    cdef Py_ssize_t begin = n * share // p.n_shares, end = n * (share + 1) // p.n_shares
    cdef double* sums = p.sums + share * p.slot
    if p.start == 0:
        memset(sums, 0, p.slot * sizeof(double))
    (<JointPass> p.objective).add_curvature(
        begin + p.start, min(begin + p.stop, end), p.k, p.x, p.P, p.squares, p.C, sums,
        p.buffers + worker * p.buffer
    )


cdef object take(list spare, Py_ssize_t size):
    """Memory for one pass: that of an earlier pass if it is large enough.

    Two Python threads may be in a pass at once; a list gives each piece to one of them only.
    """
    try:
        memory = spare.pop()
    except IndexError:
        return np.empty(size)
    return memory if len(memory) >= size else np.empty(size)


cdef inline double* aligned(double* p) noexcept nogil:
    """The next address at the beginning of a cache line."""
    cdef uintptr_t line = LINE * sizeof(double)
    return <double*> ((<uintptr_t> p + line - 1) // line * line)


cdef inline Py_ssize_t cut(Py_ssize_t d, int part, int n_parts) noexcept nogil:
    """The first feature of a part, at the beginning of a cache line."""
    return d if part == n_parts else d * part // n_parts // LINE * LINE
