# The inner loops of simd/losses.h, for the modules that are built with them.

cdef extern from "simd/losses.h":
    ctypedef double (*fp_loss_rows)(
        const double*, const double*, const double*, double*, Py_ssize_t, Py_ssize_t
    ) noexcept nogil
    struct losses_loops:
        fp_loss_rows multiclass_logistic
        fp_loss_rows smoothed_multiclass_hinge
        fp_loss_rows multiclass_squared_hinge
        fp_loss_rows binary_logistic
        fp_loss_rows smoothed_binary_hinge
        fp_loss_rows binary_squared_hinge
        fp_loss_rows squared
        double (*softmax_conjugate)(const double*, double, Py_ssize_t, double,
                                    Py_ssize_t) noexcept nogil
        double (*binary_soft_conjugate)(const double*, const double*, double, double,
                                        Py_ssize_t) noexcept nogil
        bint (*all_within)(const double*, Py_ssize_t, double, double) noexcept nogil
    const losses_loops* choose_losses_loops() noexcept nogil
