// The network log's two ends, as handles use them: a publication that sends its log to receivers, and a subscription that reads
// the images of all sessions of its endpoint. docs/design/network_log.md.
#pragma once

#include "net/receive/udp_reader.hpp"
#include "net/send/udp_writer.hpp"
