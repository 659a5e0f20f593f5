"""Plans a launch: turns an effective EDF into one frozen, versioned document. Pure."""
