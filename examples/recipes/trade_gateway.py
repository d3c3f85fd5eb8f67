"""Trading: orders to a gateway as requests. The gateway is killed: the open order fails once, and the next gateway serves the client."""

import multiprocessing

import penstock


def gateway(number: int) -> None:
    """Accepts orders until it is killed. It never answers to HANG."""
    with penstock.join("pipe:orders", role="reply") as orders:
        while True:
            order = orders.recv()
            if order.body == b"HANG":
                multiprocessing.Event().wait()
            order.reply(b"gateway %d: " % number + order.body)


if __name__ == "__main__":
    start = multiprocessing.get_context("spawn").Process
    with penstock.join("pipe:orders", role="request") as client:
        for number, order in ((1, b"BUY 100 ACME"), (2, b"SELL 100 ACME")):
            process = start(target=gateway, args=(number,), daemon=True)
            process.start()
            print(client.request(order, timeout=60, retries=1).decode())
            pending = client.submit(b"HANG")
            process.kill()
            process.join()
            try:
                pending.result(timeout=60)
            except penstock.Disconnected:
                print("the gateway died before it answered")
