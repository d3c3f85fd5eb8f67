// A program's own counter: one word in a file, to which any number of processes add.
#include "bind/ground/bind.hpp"

#include "ground/atomics.hpp"
#include "ground/files/mapping.hpp"

#include <string>
#include <utility>

namespace penstock::bind {

namespace {

class Counter {
  public:
    static constexpr uint64_t bytes = 64; // of the file: the word, and room
    Counter(int fd, std::string name) : name_(std::move(name)), memory_(fd, bytes, true) {}
    void add(uint64_t amount) { word().add(amount); } // SYNC -: only its value counts
    uint64_t value() { return word().relaxed(); }
    const std::string &name() const { return name_; }

  private:
    Atomic<uint64_t> &word() { return *reinterpret_cast<Atomic<uint64_t> *>(memory_.bytes()); }

    std::string name_;
    Mapping memory_;
};

// What `add` was given. A fraction or a truth value is a mistake of the caller's, not a count.
uint64_t amount_of(nb::handle given, const std::string &name) {
    const std::string told = "the counter " + name + ": add() takes a whole number from 0 to 2**64 - 1, ";
    if (PyBool_Check(given.ptr()) || !PyIndex_Check(given.ptr())) {
        const std::string type = nb::cast<std::string>(given.type().attr("__name__"));
        throw nb::type_error((told + "not " + type + ": give int(…) of it if that is what you count").c_str());
    }
    const nb::object whole = nb::steal(PyNumber_Index(given.ptr()));
    if (!whole.is_valid()) throw nb::python_error();
    const uint64_t amount = PyLong_AsUnsignedLongLong(whole.ptr());
    if (amount != ~uint64_t{0} || PyErr_Occurred() == nullptr) return amount;
    PyErr_Clear(); // OverflowError
    const int below = PyObject_RichCompareBool(whole.ptr(), nb::int_(0).ptr(), Py_LT);
    throw Error(Code::invalid, told + (below == 1 ? "and this one is below 0: a counter only grows" : "and this one is larger"));
}

} // namespace

void bind_counter(nb::module_ &m) {
    nb::class_<Counter>(
        m, "Counter",
        "A counter of this user's programs, by its name: any process adds to it, and the count outlives them. Any "
        "thread may call.")
        .def(nb::init<int, std::string>(), nb::arg("fd"), nb::arg("name"))
        .def(
            "add", [](Counter &self, nb::handle amount) { self.add(amount_of(amount, self.name())); },
            nb::arg("amount").none() = 1, nb::sig("def add(self, amount: int = 1) -> None"),
            "Adds a whole number from 0 to 2**64 - 1. The count is kept modulo 2**64: behind 2**64 - 1 it goes on at 0. "
            "`TypeError` "
            "for anything else, a truth value included; `Invalid` for a number below 0 or above.")
        .def_prop_ro("value", &Counter::value, "The count now, over all processes.")
        .def_prop_ro("name", &Counter::name)
        .def("__repr__", [](Counter &self) { return "<Counter " + self.name() + " at " + std::to_string(self.value()) + ">"; })
        .def_prop_ro_static("BYTES", [](nb::handle) { return Counter::bytes; });
}

} // namespace penstock::bind
