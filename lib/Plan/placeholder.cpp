// The first file of this library is on its way.
