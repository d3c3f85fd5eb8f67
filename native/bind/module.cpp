// The extension module: the rooms bound by the other files here.
#include "bind.hpp"

NB_MODULE(core, m) {
    using namespace penstock::bind;
    m.doc() = "Penstock's compiled core: shared bytes, atomics, recordings. Private: use penstock.";
    nb::set_leak_warnings(false); // threads parked at the exit gate keep their handles, rightly
    bind_errors(m);
    bind_gate(m);
    bind_formats(m);
    bind_early(m);
    bind_channels(m);
    bind_publication(m);
    bind_awaiting(m);
    bind_streams(m);
    bind_subscription(m);
    bind_waiting(m);
    bind_recording(m);
    bind_frames(m);
    bind_sync(m);
    bind_pipe(m);
    bind_pipe_sockets(m);
    bind_mailbox(m);
    bind_udp(m);
}
