// The deliveries of one message: each recipient on its own, several at once, on worker threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "body_store.h"
#include "hub.h"

namespace twinloft::lmtpd {

// Delivers to every recipient, and then calls `done` once, on a worker thread, with a reply for each, in the
// order of the recipients. `done` is destroyed on the thread that calls it, after the call. Once `gone` is true (the
// client has left) what has not begun is not delivered: the MTA will send it again, and would have it twice.
using DeliveriesDone = std::function<void(std::vector<Reply>)>;
void start_deliveries(Hub& hub, std::shared_ptr<const Envelope> envelope, std::shared_ptr<BodyStore> body,
                      std::shared_ptr<const std::atomic<bool>> gone, DeliveriesDone done);

}  // namespace twinloft::lmtpd
