// The messages of the robot. robot.py has the same fields as NumPy dtypes.
#pragma once

#include <penstock.hpp>

struct Pose {
    int64_t number;
    double x, y;
    float heading;
};
PENSTOCK_STRUCT(Pose, number, x, y, heading);

struct Command {
    int64_t number; // of the pose that it answers
    float wheels[2];
};
PENSTOCK_STRUCT(Command, number, wheels);
