// The extension module: what the other folders bind.
#include "bind/ground/bind.hpp"

// The name is that of the definition alone: the module is `core`, by PyInit_core below.
NB_MODULE(core_of_main, m) {
    using namespace penstock::bind;
    m.doc() = "Penstock's compiled core: shared bytes, atomics, recordings. Private: use penstock.";
    nb::set_leak_warnings(false); // threads parked at the exit gate keep their handles, rightly
    bind_errors(m);
    bind_gate(m);
    bind_strict(m);
    bind_formats(m);
    bind_early(m);
    bind_publication(m);
    bind_awaiting(m);
    bind_streams(m);
    bind_subscription(m);
    bind_waiting(m);
    bind_recording(m);
    bind_look(m);
    bind_log(m);
    bind_ring(m);
    bind_frames(m);
    bind_sync(m);
    bind_pipe(m);
    bind_pipe_sockets(m);
    bind_mailbox(m);
    bind_counter(m);
    bind_udp(m);
    bind_why(m);
    bind_refusals(m); // last: it goes over all functions
}

namespace {

// The classes of the module, and of nanobind, are those of one interpreter. Looked at before anything of it is made: a
// subinterpreter that got further would replace them under the main one.
bool in_main_interpreter() {
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return true;
    PyErr_SetString(PyExc_ImportError, "penstock cannot be imported in a subinterpreter: import it in the main interpreter, and "
                                       "use threads or processes (multiprocessing) instead of subinterpreters");
    return false;
}

int execute(PyObject *module) { return in_main_interpreter() ? nanobind_core_of_main_exec(module) : -1; }

} // namespace

// From Python 3.13 on this runs in the main interpreter whichever imports the module, and `execute` in the one that does.
extern "C" NB_EXPORT PyObject *PyInit_core() {
    if (!in_main_interpreter()) return nullptr;
    PyObject *definition = PyInit_core_of_main();
    if (definition == nullptr) return nullptr;
    for (PyModuleDef_Slot *slot = reinterpret_cast<PyModuleDef *>(definition)->m_slots; slot->slot != 0; ++slot)
        if (slot->slot == Py_mod_exec) slot->value = reinterpret_cast<void *>(&execute);
    return definition;
}
