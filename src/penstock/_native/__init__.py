"""The cellar: Penstock's compiled core, `core`. Private; it is C++ below `native/`."""
