"""The whole story: a robot dies and its black box is opened; a deadlock explains itself. `python examples/blackbox`"""

import deadlock
import six_programs

if __name__ == "__main__":
    six_programs.main()
    print()
    deadlock.main()
