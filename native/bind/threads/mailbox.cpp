// Pipes and mailboxes between threads: Python objects handed over by reference.
#include "bind/ground/strict.hpp"
#include "bind/ground/wait.hpp"

#include "threads/mailbox.hpp"

#include <string>

namespace penstock::bind {

namespace {

// Serialises calls where the GIL does not.
#ifdef Py_GIL_DISABLED
using Serial = std::mutex;
#else
using Serial = NoLock;
#endif

// `Lock`: of the writers.
template <class Lock> class Handover {
  public:
    Handover() = default;
    ~Handover() {
        PyObject *left = nullptr;
        while (mailbox_.try_recv(left)) Py_DECREF(left);
    }
    void put(PyObject *item) {
        if (closed()) throw Error(Code::closed, "the pipe is closed");
        put_.add(1); // SYNC -: only its value counts; the mailbox releases it with the item
        mailbox_.send(Py_NewRef(item));
    }
    // A new reference, or null with no error set.
    PyObject *try_get() {
        PyObject *item = nullptr;
        // SYNC 41: pairs with Handover::close; forbids looking for an item before: one that was put before close() could be
        // missed
        const bool closed = closed_.acquire();
        bool found;
        {
            const std::lock_guard alone(taking_);
            found = mailbox_.try_recv(item);
        }
        if (!found) {
            if (closed) throw Error(Code::closed, "the pipe is closed");
            return nullptr;
        }
        got_.add(1); // SYNC 42: pairs with Handover::size; forbids counting an item as taken that is not counted as put
        return item;
    }
    PyObject *get(int64_t timeout) {
        PyObject *item = try_get();
        if (item != nullptr || timeout == 0) return item;
        bool slept = false;
        {
            SignalTarget signal(*this);
            wait_for(timeout, signal, [&] { return (item = try_get()) != nullptr; });
            slept = signal.slept();
        }
        if (item != nullptr && slept && waiting_.relaxed() != 0 && size() != 0)
            mailbox_.interrupt(); // another thread waits, and there is more
        return item;
    }
    uint64_t size() const {
        // SYNC 42: pairs with Handover::try_get; forbids reading the puts before the takes: the difference could be negative
        const uint64_t got = got_.acquire();
        return put_.relaxed() - got;
    }
    int fileno() {
        const std::lock_guard alone(taking_);
        return mailbox_.fd();
    }
    void close() {
        closed_.release(true); // SYNC 41: pairs with Handover::try_get; forbids it being seen before the items put earlier
        mailbox_.interrupt();
    }
    bool closed() const { return closed_.relaxed(); }

  private:
    class SignalTarget : public Target {
      public:
        explicit SignalTarget(Handover &handover) : handover_(handover) {
            handover_.waiting_.add(1); // SYNC -: the lock of the taker, or the GIL, orders it with the look for an item
        }
        ~SignalTarget() {
            handover_.waiting_.add(-1); // SYNC -: only its value counts
        }
        SignalTarget(const SignalTarget &) = delete;
        SignalTarget &operator=(const SignalTarget &) = delete;
        void sleep(int64_t ns) {
            slept_ = true;
            handover_.mailbox_.wait(static_cast<int>((ns + 999'999) / 1'000'000));
        }
        void awake() {
            const std::lock_guard alone(handover_.taking_);
            handover_.mailbox_.woken();
        }
        bool slept() const { return slept_; }

      private:
        Handover &handover_;
        bool slept_ = false;
    };

    Mailbox<PyObject *, Lock> mailbox_;
    Serial taking_;
    Atomic<uint64_t> put_{};
    Atomic<uint64_t> got_{};
    Atomic<int> waiting_{};
    Atomic<bool> closed_{};
};

template <class Kind> PyObject *put_item(PyObject *self, PyObject *item) {
    try {
        if (item == Py_NotImplemented)
            throw nb::type_error("NotImplemented cannot be put: take() returns it where there is nothing");
        nb::inst_ptr<Kind>(self)->put(item);
        Py_RETURN_NONE;
    } catch (...) {
        return raise_current();
    }
}

// The item, or a token that says that there was none.
template <class Kind> PyObject *take_item(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
        if (count + named > 1 || (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") != 0))
            throw nb::type_error("take() takes an optional timeout");
        PyObject *item = nb::inst_ptr<Kind>(self)->get(count + named == 0 ? 0 : timeout_ns(args[0]));
        return item != nullptr ? item : Py_NewRef(Py_NotImplemented);
    } catch (...) {
        return raise_current();
    }
}

// As queue.SimpleQueue's: the item, or what the class calls `_empty`.
template <class Kind> PyObject *get_within(PyObject *self, int64_t timeout) {
    auto *handover = nb::inst_ptr<Kind>(self);
    if (PyObject *item = handover->get(timeout)) return item;
    const nb::object empty = nb::getattr(nb::handle(reinterpret_cast<PyObject *>(Py_TYPE(self))), "_empty");
    PyErr_Format(empty.ptr(), "nothing was put within the timeout (%llu waiting)",
                 static_cast<unsigned long long>(handover->size()));
    return nullptr;
}

template <class Kind> PyObject *get_item(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        if (count == 0 && names == nullptr) return get_within<Kind>(self, for_ever);
        PyObject *given[2] = {count > 0 ? args[0] : nullptr, count > 1 ? args[1] : nullptr};
        bool fine = count <= 2;
        for (Py_ssize_t i = 0; names != nullptr && fine && i < PyTuple_GET_SIZE(names); ++i) {
            PyObject *name = PyTuple_GET_ITEM(names, i);
            const int place = PyUnicode_CompareWithASCIIString(name, "block") == 0     ? 0
                              : PyUnicode_CompareWithASCIIString(name, "timeout") == 0 ? 1
                                                                                       : -1;
            fine = place >= 0 && given[place] == nullptr;
            if (fine) given[place] = args[count + i];
        }
        if (!fine) throw nb::type_error("get() takes an optional block and an optional timeout");
        const int block = given[0] == nullptr ? 1 : PyObject_IsTrue(given[0]);
        if (block < 0) throw nb::python_error();
        return get_within<Kind>(self, block == 0 ? 0 : given[1] == nullptr ? for_ever : timeout_ns(given[1]));
    } catch (...) {
        return raise_current();
    }
}

template <class Kind> PyObject *get_item_now(PyObject *self, PyObject *) {
    try {
        return get_within<Kind>(self, 0);
    } catch (...) {
        return raise_current();
    }
}

template <class Kind> void bind_kind(nb::module_ &m, const char *name, const char *text) {
    static PyMethodDef methods[] = {
        {"put", as_method(put_item<Kind>), METH_O, "put(item, /)\n--\n\nPuts an object. Never blocks. `Closed` after close()."},
        {"put_nowait", as_method(put_item<Kind>), METH_O, "put_nowait(item, /)\n--\n\nThe same as put, which never blocks."},
        {"get", as_method(get_item<Kind>), METH_FASTCALL | METH_KEYWORDS,
         "get(block=True, timeout=None)\n--\n\n"
         "The next object. `Empty` after `timeout` seconds, or at once without `block`; `Closed` after close() and the last "
         "object."},
        {"get_nowait", as_method(get_item_now<Kind>), METH_NOARGS, "get_nowait()\n--\n\nThe next object, or `Empty`."},
        {"take", as_method(take_item<Kind>), METH_FASTCALL | METH_KEYWORDS,
         "take(timeout=0)\n--\n\nThe next object, or NotImplemented if there was none within the timeout."}};
    auto type = nb::class_<Kind>(m, name, nb::type_slots(strict_slots), text)
                    .def(nb::init<>())
                    .def("qsize", &Kind::size, "How many objects wait to be taken.")
                    .def("fileno", &Kind::fileno,
                         "A descriptor that is readable while there is something to take, for the reader's selectors.")
                    .def("close", &Kind::close, "Ends the queue: `put` raises `Closed`, and a waiting `get` ends.")
                    .def_prop_ro("closed", &Kind::closed, "Whether close() was called.");
    for (PyMethodDef &method : methods) add_method(type, &method);
}

} // namespace

void bind_mailbox(nb::module_ &m) {
    bind_kind<Handover<Serial>>(m, "ThreadPipe", "A queue from one thread to another, without a lock.");
    bind_kind<Handover<std::mutex>>(m, "ThreadMailbox", "A queue from many threads to one.");
}

} // namespace penstock::bind
