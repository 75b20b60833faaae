// A place for CMake to hang precompiled headers on; nothing of its own.
