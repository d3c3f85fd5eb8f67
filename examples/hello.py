"""One message from a publication to a subscription."""

import penstock

with penstock.publish("log:hello", codec="json") as pub, penstock.subscribe("log:hello") as sub:
    pub.send({"text": "hello"})
    print(sub.recv(timeout=1))
